"""The demo as a process of its own, and what its report must say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Self

import pytest

COMMAND = [sys.executable, "-m", "slicelock", "demo"]
MARK = "DEMO_TEST_MARK"


class Demo:
    """A demo process. Everything it starts inherits a mark in its environment, which tells leftovers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.env = {**os.environ, MARK: self.mark, "TMPDIR": str(folder), "COLUMNS": "80", "LINES": "24"}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()

    def start(
        self, *options: str, command: list[str] = COMMAND, out: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [*command, *options],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self.process

    def report(self, *options: str, command: list[str] = COMMAND) -> dict[str, Any]:
        """Run it to its end: what it says, once nothing of it is left."""
        process = self.start("--json", *options, command=command)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output.decode()
        self.nothing_is_left()
        return json.loads(output)

    def processes(self) -> list[str]:
        """Every process with the mark, by its command line."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has just ended, or is not ours to see
        return found

    def nothing_is_left(self) -> None:
        """No process and no file; that /dev/shm is as before is looked at after every test."""
        assert self.processes() == []
        assert list(self.folder.iterdir()) == []


def keeps_its_promises(report: dict[str, Any], jobs: int) -> None:
    """All but what depends on how much else the machine has to do."""
    assert [one["job"] for one in report["solo"]] == [f"digits-{number}" for number in range(1, jobs + 1)]
    assert all(one["accuracy"] > 0.8 for one in report["solo"])
    assert report["identical"] is True
    assert report["violations"] == []
    assert report["serial_wall_s"] == pytest.approx(sum(one["wall_s"] for one in report["solo"]), abs=0.01)
    shared = report["shared"]
    assert shared["turns"] >= shared["switches"] > 0
    assert shared["bytes_moved"] > 0
    assert shared["handoff_ms_p50"] > 0
    assert report["kill_to_next_turn_s"] < 30  # a lease is 60 s: the agent has seen the death, not the lease
