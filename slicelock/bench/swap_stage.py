"""The processes of the swap bench, which are asked in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slicelock.bench.stage import LineProcess
from slicelock.errors import SlicelockError

Facts = dict[str, Any]


class Actor(LineProcess):
    """A process with a GPU context. SlicelockError when it says that it failed."""

    def __init__(self, kind: str, env: Mapping[str, str] | None = None) -> None:
        super().__init__("swap_actor", kind, env=env)

    def greet(self) -> None:
        self.answer()

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
