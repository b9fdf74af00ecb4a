"""slicelock's side of a hand-over."""

from __future__ import annotations

from slicelock.client import Slice, Turn

SLICE = "bench"


class SliceSide:
    """A job as a user writes it: its settings come from the environment."""

    def __init__(self, url: str, name: str, other: str) -> None:
        del url, name, other
        self._slice = Slice(SLICE)
        self._turn: Turn | None = None

    def first(self) -> None:
        """Take the turn when nobody has it."""
        self.acquire()

    def acquire(self) -> None:
        """Wait for a turn."""
        self._turn = self._slice.acquire()

    def give(self) -> None:
        """Yield it."""
        assert self._turn is not None
        self._turn.yield_()

    def close(self) -> None:
        """The interpreter's end says goodbye."""
