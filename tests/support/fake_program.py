"""A stand-in for the program `cuda-checkpoint`: the fake driver's calls in the real one's words."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.fake_driver import FakeDriver

WORDS = {
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    304: "OS call failed or operation not supported on this OS",
    401: "the operation cannot be performed in the present state",
    500: "named symbol not found",
    600: "device not ready",
    800: "operation not permitted",
    801: "operation not supported",
    802: "system not yet initialized",
}
ACTIONS = {"lock": "lock", "checkpoint": "save", "restore": "restore", "unlock": "unlock"}


def install(folder: Path) -> Path:
    """Put the program into a folder."""
    path = folder / "cuda-checkpoint"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m {__name__} "$@"\n')
    path.chmod(0o755)
    return path


def main(option: str, *more: str) -> int:
    driver, pid = FakeDriver(), int(more[-1])
    match option:
        case "--get-state":
            code, told = driver.state(pid)
        case "--get-restore-tid":
            code, told = driver.thread(pid)
        case _ if more[0] == "lock":
            code, told = driver.lock(pid, int(more[2]))
        case _:
            code, told = getattr(driver, ACTIONS[more[0]])(pid)
    if code == 0:
        print(told if told is not None else "")
        return 0
    print(f"Could not do it on process ID {pid}: {told or WORDS[code]}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
