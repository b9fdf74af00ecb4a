"""Whether the host has room for what is to be saved. Room that was promised and is not used yet counts as
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from slicelock.errors import SnapshotFailed
from slicelock.host_memory import GIB, available, groups_of, left_in, reserve_of


class HostBudget:
    """Gives out host memory. `measure` returns the machine's total and available bytes (for tests)."""

    def __init__(self, measure: Callable[[], tuple[int, int]] = available) -> None:
        self._measure = measure
        self._promised = 0

    @contextmanager
    def room(self, size: int, *, pid: int | str = "self") -> Generator[None]:
        """Keep `size` bytes for the block; SnapshotFailed, with the numbers, when they are not there.

        `pid` is the process in whose cgroups the bytes will count.
        """
        if reason := self.refusal(size, pid):
            raise SnapshotFailed(reason)
        self._promised += size
        try:
            yield
        finally:
            self._promised -= size

    def refusal(self, size: int, pid: int | str = "self") -> str:
        """Why so many bytes cannot be had; empty when they can."""
        total, free = self._measure()
        left = free - self._promised - reserve_of(total)
        if size > left:
            return (
                f"host memory does not suffice: {_gib(size)} are needed, {_gib(max(0, left))} can be given "
                f"({_gib(free)} available, {_gib(reserve_of(total))} kept in reserve)"
            )
        for group in groups_of(pid):
            room = left_in(group)
            if room is not None and size > room - self._promised:
                return f"the memory limit of {group} leaves {_gib(max(0, room))}, {_gib(size)} are needed"
        return ""


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
