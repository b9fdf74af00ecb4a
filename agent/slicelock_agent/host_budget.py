"""Whether the host has room for what is to be saved. Room that was promised and is not used yet counts as
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from slicelock.errors import SnapshotFailed
from slicelock.host_memory import available, refusal


class HostBudget:
    """Gives out host memory. `measure` returns the machine's total and available bytes (for tests)."""

    def __init__(self, measure: Callable[[], tuple[int, int]] = available) -> None:
        self._measure = measure
        self._promised = 0

    @contextmanager
    def room(self, size: int) -> Generator[None]:
        """Keep `size` bytes for the block; SnapshotFailed, with the numbers, when they are not there."""
        if reason := self.refusal(size):
            raise SnapshotFailed(reason)
        self._promised += size
        try:
            yield
        finally:
            self._promised -= size

    def refusal(self, size: int) -> str:
        """Why so many bytes cannot be had; empty when they can."""
        return refusal(size, self._promised, self._measure())
