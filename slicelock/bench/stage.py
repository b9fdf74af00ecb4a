"""Child processes of a bench: started, told what to do a line at a time, and gone at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from slicelock.errors import SlicelockError
from slicelock.guard import die_with_parent

END_S = 5.0


class Actor:
    """A process that answers each line with one, as a context manager. `endless`: one that does not read."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, endless: bool = False) -> None:
        self._endless = endless
        self._process = subprocess.Popen(
            [sys.executable, "-m", "slicelock.bench.side", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, no lock is taken
            start_new_session=True,  # Ctrl-C in a terminal is for the bench alone
        )

    def __enter__(self) -> Self:
        try:
            if self.answer() == "ready":
                return self
        except BaseException:
            self.close()
            raise
        self.close()
        raise SlicelockError("A process of the bench did not start.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, word: str) -> None:
        """Give it something to do, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """What it said; SlicelockError when it has died."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SlicelockError("A process of the bench ended early.", advice="Its last words are above.")
        return line.strip()

    def ask(self, word: str) -> int:
        """Have it do something, and the time it tells, in monotonic ns."""
        self.tell(word)
        return int(self.answer())

    def close(self) -> None:
        """End it: its input ends, and if that does not help within 5 s, it is made to."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        if self._endless:
            self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._process.stdout.close()  # not before: it may still have something to say
