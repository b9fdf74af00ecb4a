"""Counting a run's processes that use CUDA, although processes come and go meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection

from slicelock_agent.backends.cuda.discovery import Process
from slicelock_agent.backends.cuda.saved_runs import Saved
from slicelock_agent.backends.cuda.verbs import Failures, Verbs

PASSES = 5


class Census:
    """One run's processes. `look` lists all of them, as /proc shows them at the moment."""

    def __init__(self, verbs: Verbs, look: Callable[[], list[Process]]) -> None:
        self._verbs, self._look = verbs, look

    async def settled(self) -> tuple[list[Process], Failures]:
        """Those that use CUDA, when two looks in a row agree, and those of which that cannot be told."""
        before: list[Process] | None = None
        users: list[Process] = []
        unclear: Failures = {}
        for _ in range(PASSES):
            users, unclear = await self._verbs.users(self._look())
            if unclear or users == before:
                break
            before = users
        return users, unclear

    async def again(self, locked: Collection[Process]) -> tuple[list[Process], Failures]:
        """Those that use CUDA now; the locked ones do, and are not asked."""
        others = [one for one in self._look() if one not in locked]
        users, unclear = await self._verbs.users(others)
        return [*locked, *users], unclear

    async def everyone(self, saved: Saved | None) -> list[Process]:
        """All that may have to do with the run's saved state: those written down, and all that are there."""
        return sorted({*self._look(), *(saved.processes if saved else ())})
