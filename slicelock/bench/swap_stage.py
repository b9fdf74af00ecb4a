"""The processes of the swap bench: started, asked in JSON, and gone at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from slicelock.errors import SlicelockError
from slicelock.guard import die_with_parent

END_S = 20.0

Facts = dict[str, Any]


class Actor:
    """A process with a GPU context, as a context manager. SlicelockError when it says that it failed."""

    def __init__(self, kind: str, env: Mapping[str, str] | None = None) -> None:
        self._kind = kind
        self._process = subprocess.Popen(
            [sys.executable, "-m", "slicelock.bench.swap_actor", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, no lock is taken
        )

    @property
    def pid(self) -> int:
        """The process's pid."""
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            self.answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def tell(self, do: str, **options: object) -> None:
        """Give it something to do, without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Facts:
        """What it measured."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SlicelockError(
                f"A process of the bench ({self._kind}) ended early.", advice="Its last words are above."
            )
        facts: Facts = json.loads(line)
        if "error" in facts:
            raise SlicelockError(str(facts["error"]))
        return facts

    def ask(self, do: str, **options: object) -> Facts:
        """Have it do something, and what it measured."""
        self.tell(do, **options)
        return self.answer()

    def close(self) -> None:
        """End it: its input ends, and if that does not help within 20 s, it is made to."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
