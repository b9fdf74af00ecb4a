"""Whether the host has room for what is to be saved. Room that was promised and is not used yet counts as
taken. Each refusal ends with its remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from slicelock.errors import SnapshotFailed
from slicelock.host_memory import available, refusal_by_groups, refusal_by_machine

NO_GROUPS: Mapping[Path, int] = MappingProxyType({})


class HostBudget:
    """Gives out host memory. `measure` returns the machine's total and available bytes (for tests).

    `groups` are the bytes of it that each control group will hold: a limit counts wherever they are kept.
    """

    def __init__(self, measure: Callable[[], tuple[int, int]] = available) -> None:
        self._measure = measure
        self._promised, self._promised_in = 0, Counter[Path]()

    @contextmanager
    def room(self, size: int, groups: Mapping[Path, int] = NO_GROUPS) -> Generator[None]:
        """Keep `size` bytes for the block; SnapshotFailed, with the numbers, when they are not there."""
        if reason := self.refusal(size, groups):
            raise SnapshotFailed(reason)
        self._promised += size
        self._promised_in.update(groups)
        try:
            yield
        finally:
            self._promised -= size
            self._promised_in.subtract(groups)
            self._promised_in = +self._promised_in

    def refusal(self, size: int, groups: Mapping[Path, int] = NO_GROUPS) -> str:
        """Why so many bytes cannot be had; empty when they can, and for nothing."""
        if not size:
            return ""
        if why := refusal_by_machine(size, self._promised, self._measure()):
            return f"{why}; give the node more memory, or the run hooks that leave less to be saved"
        return over_limit(groups, self._promised_in)


def over_limit(groups: Mapping[Path, int], promised: Mapping[Path, int] = NO_GROUPS) -> str:
    """Why control groups may not hold so many bytes more; empty when they may."""
    why = refusal_by_groups(groups, promised)
    return why and f"{why}; raise it, or give the run hooks that leave less to be saved"
