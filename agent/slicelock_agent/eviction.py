"""Getting a run off a slice's devices: hooks, then from outside, then kill, as far as the slice allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from slicelock.errors import AgentError, SnapshotFailed
from slicelock.states import RunState
from slicelock_agent import processes
from slicelock_agent.backends.base import Report, Subject, Truth
from slicelock_agent.exchanges import Layout
from slicelock_agent.reconcile import Stay
from slicelock_agent.result import Outcome
from slicelock_agent.station import Station
from slicelock_agent.supervision import unless

log = logging.getLogger("slicelock_agent")

LOOKS = 3
"""How often processes may appear while a run is being locked before that counts as a failure."""
KILL_PATIENCE_S = 10.0


class Eviction:
    """One attempt to evict a run, in the switch with the given fence.

    `empties`: what its hooks leave is saved from outside as well, so that nothing of it stays. `layout`: the
    page over which its hooks hand the devices to the next run.
    """

    def __init__(
        self,
        station: Station,
        run: str,
        fence: int,
        recalled: asyncio.Event,
        *,
        empties: bool = False,
        layout: Layout | None = None,
    ) -> None:
        self._at, self._run, self._fence, self._recalled = station, run, fence, recalled
        self._page, self._empties, self._tried_outside = station.page, empties, False
        self._layout, self._bytes = layout, 0
        self._reasons: list[str] = []

    async def attempt(self, ways: tuple[str, ...]) -> Outcome:
        """Try each way until the devices are free. The journal says at every moment what was begun."""
        verbs: dict[str, Callable[[], Awaitable[bool]]] = {
            "hooks": self._by_hooks,
            "cuda": self._from_outside,
            "kill": self._by_kill,
        }
        if self._at.is_empty_of(self._stay):
            self._page.drop(self._run)
            return Outcome(True)
        poisoned = self._stay.state is RunState.POISONED
        for way in ways:
            if poisoned and way != "kill":
                self._reasons.append("its state can neither be saved nor brought back")
            elif await verbs[way]():
                self._note_detours(way)
                return Outcome(True, self._bytes)
            if self._stay.state is RunState.UNKNOWN:
                break
            if self._recalled.is_set():
                self._back()
                return Outcome(False, self._bytes, recalled=True)
        self._back()
        reason = "; ".join(self._reasons) or f"it has no hooks, and only {', '.join(ways)} may move it"
        return Outcome(False, self._bytes, f"run {self._run} cannot be evicted: {reason}")

    def _note_detours(self, way: str) -> None:
        if self._reasons:
            log.warning("run %s was evicted by %s, since %s", self._run, way, "; ".join(self._reasons))

    @property
    def _stay(self) -> Stay:
        return self._page.stays[self._run]

    def _put(self, state: RunState, **changes: object) -> None:
        self._page.put(replace(self._stay, state=state, **changes))  # type: ignore[arg-type]

    def _back(self) -> None:
        """Nothing was moved as a whole: the run is loaded; `hooked` says what its hooks may have begun."""
        if self._stay.state is RunState.SNAPSHOTTING:
            self._put(RunState.LOADED, image="")

    def _saved(self, image: str = "") -> bool:
        if image or self._stay.hooked or self._at.registry.moves_itself(self._run, self._at.name):
            self._put(RunState.SAVED, image=image, bytes=self._bytes or self._stay.bytes)
        else:
            self._page.drop(self._run)  # it had nothing here
        return True

    # ------------------------------------------------------------ hooks

    async def _by_hooks(self) -> bool:
        if not self._at.registry.moves_itself(self._run, self._at.name):
            return False
        subject = replace(await self._at.hooked(self._run, self._fence), layout=self._layout)
        moves = bool(subject.targets or subject.servers)
        self._put(RunState.SNAPSHOTTING, hooked=self._stay.hooked or moves)
        used = self._at.used
        report = await unless(self._recalled, self._at.hooks.save(subject, self._at.hook_deadline))
        if report is None:
            return False
        self._bytes += report.bytes or max(0, used - self._at.used)
        if report.failures:
            self._reasons.append(report.reason)
        elif left := await self._at.left(self._run):
            self._reasons.append(f"{left} after its hooks")
        elif self._empties:
            return await self._from_outside()
        else:
            return self._saved()
        return False

    # ------------------------------------------------------------ from outside

    def _is_elsewhere(self) -> bool:
        """Whether the run's processes are in a turn on another slice, and so must not be disturbed."""
        other = self._at.elsewhere(self._run)
        if other and (reason := f"in use on {other}") not in self._reasons:
            self._reasons.append(reason)
        return bool(other)

    async def _from_outside(self) -> bool:
        if self._tried_outside:
            return False
        self._tried_outside = True
        if not self._at.accelerator.exclusive and self._is_elsewhere():
            return False  # what would be moved are whole processes
        if why := self._at.hidden(self._run):
            self._reasons.append(why)
            return False
        image = f"{self._run}@{self._fence}"
        self._put(RunState.SNAPSHOTTING, image=image)
        subject = self._at.subject(self._run, self._fence, image)
        estimate = self._at.accelerator.estimate(subject)
        if not estimate.device_bytes:
            return self._saved()
        try:
            with self._at.budget.room(estimate.host_bytes, estimate.groups):
                return await self._move(subject)
        except SnapshotFailed as failure:
            self._reasons.append(str(failure))
            return False

    async def _move(self, subject: Subject) -> bool:
        deadline = self._at.deadline(subject)
        subject, held = await self._lock_all(subject, deadline)
        report = await self._at.accelerator.save(subject, deadline) if held.ok else held
        reason = report.reason or await self._at.left(self._run, subject.image)
        if not reason:
            self._bytes += report.bytes
            return self._saved(subject.image)
        self._reasons.append(reason)
        if held.untouched:
            self._back()
            return False
        return await self._undo(subject, deadline)

    async def _lock_all(self, subject: Subject, deadline: float) -> tuple[Subject, Report]:
        """Lock every process, look again, and lock what has appeared meanwhile, before anything is saved."""
        for _ in range(LOOKS):
            report = await self._at.accelerator.lock(subject, deadline)
            again = self._at.subject(self._run, self._fence, subject.image)
            if not report.ok or again.targets == subject.targets:
                return subject, report
            subject = again
        return subject, Report(failures={f"run {self._run}": "new processes keep appearing"})

    async def _undo(self, subject: Subject, deadline: float) -> bool:
        """Saving failed: find out what is true, and bring the run back to one state."""
        match await self._at.accelerator.observe(subject, deadline):
            case Truth.LOADED | Truth.ABSENT:
                await self._let_go(subject, deadline)
            case Truth.SAVED if not await self._at.left(self._run, subject.image):
                return self._saved(subject.image)
            case Truth.SAVED | Truth.PARTIAL:
                if (await self._at.accelerator.restore(subject, deadline)).ok:
                    await self._let_go(subject, deadline)
                else:
                    self._put(RunState.UNKNOWN)
            case _:
                self._put(RunState.UNKNOWN)
        return False

    async def _let_go(self, subject: Subject, deadline: float) -> None:
        """A run that stays locked is not loaded: let in, it would stand still for its whole turn."""
        report = await self._at.accelerator.unlock(subject, deadline)
        if report.ok:
            await self._at.accelerator.discard(subject)
        else:
            self._reasons.append(f"it cannot be let go on: {report.reason}")
            self._put(RunState.UNKNOWN)

    # ------------------------------------------------------------ kill

    async def _by_kill(self) -> bool:
        if self._is_elsewhere():
            return False
        run = self._at.registry.runs.get(self._run)
        roots = [one.found.pid for one in self._at.registry.processes(self._run)]
        if run is None or not roots:
            self._reasons.append("no process of it is known here that could be killed")
            return False
        if untagged := [pid for pid in roots if not processes.tagged(pid, run.name, run.job)]:
            self._reasons.append(
                f"process {untagged[0]} was started without SLICELOCK_JOB or SLICELOCK_RUN in its environment"
                ", so it is not certain to be the run's"
            )
            return False
        owed = self._at.owed(self._run, self._fence)
        try:
            await processes.end(roots, self._at.registry.uids, KILL_PATIENCE_S)
            await self._at.accelerator.wipe(self._at.devices, owed)
        except AgentError as failure:
            self._reasons.append(str(failure))
            return False
        self._page.drop(self._run)
        return True
