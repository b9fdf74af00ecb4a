"""What the agent asks of its store, which is an `AsyncStore`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from slicelock.codec import R, ScriptCall
from slicelock.errors import SlicelockError


class Runner(Protocol):
    """Runs scripts one by one."""

    async def run(self, call: ScriptCall[R]) -> R: ...


class Caller(Protocol):
    """Runs scripts and hands over the replies."""

    @property
    def is_open(self) -> bool: ...
    async def open(self) -> None: ...
    def send(self, call: ScriptCall[R], take: Callable[[R | SlicelockError], None]) -> None: ...
