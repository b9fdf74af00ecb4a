"""What is known of a saved run beyond the driver's own states: its processes, and the room that it needs.

One small file for each image, written before anything is saved. The bytes themselves are in the processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slicelock_agent.backends.cuda.discovery import Process


@dataclass(frozen=True, slots=True)
class Saved:
    """A run's processes with the bytes that each has on each GPU, and how much was free beside them there."""

    processes: Mapping[Process, Mapping[str, int]] = field(default_factory=dict[Process, Mapping[str, int]])
    spare: Mapping[str, int] = field(default_factory=dict[str, int])
    lost: str = ""
    """Why it can never be restored; empty as long as it can."""

    def needs(self) -> dict[str, int]:
        """Bytes that the run takes on each GPU."""
        total: dict[str, int] = {}
        for sizes in self.processes.values():
            for gpu, size in sizes.items():
                total[gpu] = total.get(gpu, 0) + size
        return total

    def size(self, process: Process) -> int:
        """Bytes that one process takes, on all GPUs together."""
        return sum(self.processes[process].values()) if process in self.processes else 0

    @property
    def bytes(self) -> int:
        return sum(self.needs().values())

    def text(self) -> str:
        told = [
            {"pid": one.pid, "start": one.start, "bytes": dict(sizes)}
            for one, sizes in self.processes.items()
        ]
        return json.dumps({"processes": told, "spare": dict(self.spare), "lost": self.lost})

    @classmethod
    def read(cls, text: str) -> Saved:
        """Read what `text()` wrote; ValueError, KeyError or TypeError for anything else."""
        raw: dict[str, Any] = json.loads(text)
        listed = {Process(one["pid"], one["start"]): dict(one["bytes"]) for one in raw["processes"]}
        return cls(listed, dict(raw["spare"]), str(raw.get("lost", "")))


class SavedRuns:
    """The files of one agent, in a folder for each slice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, slice_name: str, image: str, saved: Saved) -> None:
        """Have it there whole or not at all; OSError when it cannot be written."""
        path = self._path(slice_name, image)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}")
        part.write_text(saved.text())
        part.rename(path)

    def read(self, slice_name: str, image: str) -> Saved | None:
        """What was written for the image; None when nothing was, or nobody can read it."""
        try:
            return Saved.read(self._path(slice_name, image).read_text())
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self, slice_name: str, image: str) -> None:
        self._path(slice_name, image).unlink(missing_ok=True)

    def images(self, slice_name: str) -> set[str]:
        """All images of the slice, those included whose writing was cut short."""
        return {path.name.removesuffix(".json") for path in (self._folder / slice_name).glob("*.json")}

    def _path(self, slice_name: str, image: str) -> Path:
        return self._folder / slice_name / f"{image}.json"
