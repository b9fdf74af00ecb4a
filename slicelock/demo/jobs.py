"""The demo's jobs: processes of a training script that report what they do as JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from slicelock import children
from slicelock.errors import SlicelockError
from slicelock.guard import descendants

GONE_S = 2.0
ON_DEVICE = ("generate", "train")
"""What is computed on the device, from the event of this name to the next."""


@dataclass(slots=True)
class JobFacts:
    """What a job is to do, and what it has told so far. Times are ns of the monotonic clock.

    `uses`: from when to when it computed on the device; the last may have no end yet.
    """

    name: str
    run: str
    seed: int
    options: tuple[str, ...]
    mode: str = "on"
    doing: str = "starting"
    doing_ns: int = 0
    step: int = 0
    steps: int = 0
    accuracy: float = 0.0
    digest: str = ""
    start_ns: int = 0
    end_ns: int = 0
    waits: list[int] = field(default_factory=list[int])
    spent: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    uses: list[tuple[int, int | None]] = field(default_factory=list[tuple[int, int | None]])
    killed_ns: int = 0

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in one event of the script's `--events`."""
        kind, at = event["event"], int(event["t_ns"])
        if kind == "wait":
            self.waits.append(at)
            self.start_ns = self.start_ns or at
        if kind == "end":
            self.end_ns, self.digest = at, event["digest"]
        if self.doing in ON_DEVICE:
            self.uses[-1] = (self.doing_ns, at)
        if kind in ON_DEVICE:
            self.uses.append((at, None))
        self.spent.setdefault(self.doing, []).append(at - self.doing_ns)
        self.doing, self.doing_ns = kind, at
        self.step, self.steps = event.get("step", self.step), event.get("steps", self.steps)
        self.accuracy = event.get("accuracy", self.accuracy)


class JobProcess:
    """One job as a process, which ends with this one; `close` ends it and whatever it started."""

    def __init__(self, script: Sequence[str], facts: JobFacts, env: Mapping[str, str], folder: Path) -> None:
        self.facts = facts
        self._rest, self._below = b"", list[int]()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = children.start(
            [sys.executable, *script, "--events", f"--seed={facts.seed}", *facts.options],
            cwd=folder,
            env={
                **env,
                "SLICELOCK_JOB": facts.name,
                "SLICELOCK_RUN": facts.run,
                "SLICELOCK_MODE": facts.mode,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        assert self._process.stdout
        self.output = self._process.stdout
        os.set_blocking(self.output.fileno(), False)

    def read(self) -> bool:
        """Take in what the job has told; False when it has ended. SlicelockError when it failed."""
        code = self._process.poll()  # before reading, so that the last words of a job that has ended are in
        with suppress(BlockingIOError):
            while data := os.read(self.output.fileno(), 1 << 16):
                self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            self._take(line)
        if code and not self.facts.killed_ns:
            raise SlicelockError(f"{self.facts.name} ended with code {code}: {self._last_words()}")
        return code is None

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return  # a library's chatter
        if isinstance(event, dict):
            self.facts.take(cast(dict[str, Any], event))

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def kill(self) -> None:
        """Kill the job (-9) and remember when."""
        self._below = descendants(self._process.pid)
        self.facts.killed_ns = time.monotonic_ns()
        self._process.kill()

    def close(self) -> None:
        """End the job if it runs, and wait until its grader has noticed."""
        if self._process.poll() is None:
            self.kill()
        self._process.wait()
        self.output.close()
        self._said.close()
        deadline = time.monotonic() + GONE_S
        while any(Path(f"/proc/{pid}").exists() for pid in self._below) and time.monotonic() < deadline:
            time.sleep(0.005)
