"""Bringing the wanted run back while the one before it is still leaving: beside it when there is room for
both, else block by block into what it frees.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from slicelock.errors import SnapshotFailed
from slicelock.states import RunState
from slicelock_agent import exchanges, loading
from slicelock_agent.exchanges import Layout
from slicelock_agent.reconcile import Wanted
from slicelock_agent.result import Outcome
from slicelock_agent.station import Station

log = logging.getLogger("slicelock_agent")

MARGIN = 1 << 30
"""Bytes beyond what its hooks offloaded that must be free before a run reloads beside another, and that
stay free while two runs exchange a device.
"""


def possible(at: Station, wanted: Wanted) -> bool:
    """Whether the wanted run is saved here and fits beside what is on the devices now."""
    stay = at.page.stays.get(wanted.run)
    if at.accelerator.exclusive or stay is None or stay.state is not RunState.SAVED:
        return False
    subject = at.subject(wanted.run, wanted.fence, stay.image)
    if stay.image:
        return not at.accelerator.lacks_room(subject)
    share = stay.bytes // len(at.devices)  # it is taken to be spread evenly
    return stay.hooked and bool(share) and not at.accelerator.lacks_room(subject, share + MARGIN)


def exchange_layout(at: Station, wanted: Wanted, leaving: str) -> Layout | None:
    """The layout over which the wanted run fills what the leaving one frees; None when they must come one
    after the other: only hooks that say so exchange a device, and only those of one user.
    """
    stay, ways = at.page.stays.get(wanted.run), wanted.ways or at.ways
    if at.accelerator.exclusive or stay is None or stay.state is not RunState.SAVED or stay.image:
        return None
    able = stay.hooked and ways[0] == "hooks" and not at.empties(wanted)
    if not able or not all(at.registry.overlaps(run, at.name) for run in (leaving, wanted.run)):
        return None
    pids = [one.found.pid for run in (leaving, wanted.run) for one in at.registry.commanded(run, at.name)]
    if (user := exchanges.user_of(pids)) is None:
        return None
    free = {device: told["total"] - told["used"] for device, told in at.accelerator.facts(at.devices).items()}
    try:
        return Layout(f"{at.name}.{wanted.fence}", free, MARGIN, pids, user)
    except SnapshotFailed as failure:
        log.info("runs %s and %s change places one after the other: %s", leaving, wanted.run, failure)
        return None


class Arrival:
    """The early return of one run, perhaps over a layout. It goes on only when the devices are free of the
    other.
    """

    def __init__(self, at: Station, run: str, fence: int, layout: Layout | None = None) -> None:
        self._at, self._run, self._fence, self._layout = at, run, fence, layout
        self._outside = bool(at.page.stays[run].image)
        self._task = asyncio.create_task(self._fetch() if self._outside else self._reload())

    async def end(self, *, cleared: bool) -> Outcome:
        """How it ended, after the other run has left (`cleared`) or could not. Never raises.

        A failure that lost nothing is no failure yet: the run is brought back once more in its own step.
        """
        try:
            brought = await self._task
            if brought.done and self._outside:
                return await self._finish(brought, cleared)
        except Exception:
            log.exception("run %s could not be brought back early", self._run)
            return Outcome(True)
        return Outcome(True, brought.bytes) if brought.kept or not self._outside else brought

    async def _finish(self, brought: Outcome, cleared: bool) -> Outcome:
        if cleared:
            return await loading.release(self._at, self._run, self._fence, brought)
        await loading.send_back(self._at, self._run, self._fence)
        return Outcome(True)

    async def _fetch(self) -> Outcome:
        return await loading.fetch(self._at, self._run, self._fence)

    async def _reload(self) -> Outcome:
        page = self._at.page
        page.put(replace(page.stays[self._run], state=RunState.RESTORING))
        try:
            return await loading.reload(self._at, self._run, self._fence, asyncio.Event(), self._layout)
        finally:
            page.put(replace(page.stays[self._run], state=RunState.LOADED))
