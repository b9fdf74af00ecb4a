"""Programs started by tests, in this checkout's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

SLICELOCK = [sys.executable, "-m", "slicelock"]


@contextmanager
def program(*words: str, env: Mapping[str, str] | None = None) -> Generator[subprocess.Popen[str]]:
    """`slicelock` with some words, killed at the end if it is still there."""
    process = subprocess.Popen(
        [*SLICELOCK, *words],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def below(pid: int) -> list[int]:
    """The direct children of a process."""
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
