"""The driver's checkpoint of a whole process, through the agent's own helper process, for the swap bench."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

from slicelock.errors import ConfigurationError, SlicelockError

MODULE = "slicelock_agent.backends.cuda.helper"
LOCK_MS = 10_000


class Driver:
    """A helper process, as a context manager. ConfigurationError when the driver cannot be called here."""

    def __init__(self) -> None:
        every_gpu = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=every_gpu,
        )

    def __enter__(self) -> Self:
        told = self._answer()
        if told["code"]:
            self.close()
            raise ConfigurationError(f"The driver's checkpoint cannot be called: {told.get('text')}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def out(self, pid: int) -> float:
        """Save a process; seconds."""
        return self._all(pid, "lock", "save")

    def back(self, pid: int) -> float:
        """Have it on the device again and going on; seconds."""
        return self._all(pid, "restore", "unlock")

    def call(self, pid: int, what: str) -> dict[str, Any]:
        """One call of the driver: its code, and what it told."""
        start = int(_stat(pid)[19])
        return self._ask({"op": what, "pid": pid, "start": start, "timeout_ms": LOCK_MS})

    def close(self) -> None:
        """End the helper."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _all(self, pid: int, *ops: str) -> float:
        begun = time.monotonic()
        for what in ops:
            if code := self.call(pid, what)["code"]:
                raise SlicelockError(f"The driver could not {what} process {pid}: code {code}.")
        return time.monotonic() - begun

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise SlicelockError("The process that calls the driver has ended.")
        return json.loads(line)


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - one line
        return file.read().rpartition(")")[2].split()
