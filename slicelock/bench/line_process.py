"""Child processes of a bench: started, told what to do a line at a time, and gone at the end.

What runs in them is in `side.py` and `swap_actor.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Self

from slicelock import children
from slicelock.errors import SlicelockError

END_S = 20.0

Facts = dict[str, Any]
"""What a process of the swap bench measured."""


class LineProcess(children.Block):
    """`python -m MODULE ARGUMENTS`, which answers each line with one, as a context manager."""

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self._kind = arguments[0]
        self._process: subprocess.Popen[str] = children.start(
            [sys.executable, "-m", f"slicelock.bench.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self) -> int:
        """The process's pid."""
        return self._process.pid

    def start(self) -> Self:
        """Wait for its first line, which says that it is there; SlicelockError when it does not."""
        self.read_line()
        return self

    def write_line(self, line: str) -> None:
        """Give it a line, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def read_line(self) -> str:
        """The next line that it says; SlicelockError when it has died."""
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SlicelockError(
                f"A process of the bench ({self._kind}) ended early.", advice="Its last words are above."
            )
        return line.strip()

    def close(self) -> None:
        """End it: its input ends, and if that does not help within 20 s, it is made to."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        children.wait_or_kill(self._process, END_S)
        self._process.stdout.close()  # not before: it may still have something to say


class SideProcess(LineProcess):
    """One side of a hand-over (`side.py`). `endless`: one that does not read."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, endless: bool = False) -> None:
        super().__init__("side", *arguments, env=env)
        self._endless = endless

    def tell(self, word: str) -> None:
        """Give it something to do, without waiting."""
        self.write_line(word)

    def answer(self) -> int:
        """When it has done so, in monotonic ns."""
        return int(self.read_line())

    def ask(self, word: str) -> int:
        """Have it do something, and the time it tells, in monotonic ns."""
        self.tell(word)
        return self.answer()

    def close(self) -> None:
        if self._endless:
            self._process.terminate()
        super().close()


class SwapProcess(LineProcess):
    """A process with a GPU context (`swap_actor.py`), asked in JSON. SlicelockError when it fails."""

    def __init__(self, kind: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__("swap_actor", kind, env=env)

    def start(self) -> Self:
        self.answer()
        return self

    def tell(self, do: str, **options: object) -> None:
        """Give it something to do, without waiting."""
        self.write_line(json.dumps({"do": do, **options}))

    def answer(self) -> Facts:
        """What it measured."""
        facts: Facts = json.loads(self.read_line())
        if "error" in facts:
            raise SlicelockError(str(facts["error"]))
        return facts

    def ask(self, do: str, **options: object) -> Facts:
        """Have it do something, and what it measured."""
        self.tell(do, **options)
        return self.answer()
