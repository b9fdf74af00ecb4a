"""Getting a run off a slice's devices: hooks, then from outside, then kill, as far as the slice allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from slicelock.errors import AgentError, SnapshotFailed
from slicelock.states import RunState
from slicelock_agent import processes
from slicelock_agent.backends.base import Report, Subject, Truth
from slicelock_agent.exchanges import Layout
from slicelock_agent.reconcile import Stay, Wanted
from slicelock_agent.result import Outcome
from slicelock_agent.station import Station
from slicelock_agent.supervision import unless

log = logging.getLogger("slicelock_agent")

LOOKS = 3
"""How often processes may appear while a run is being locked before that counts as a failure."""
KILL_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Tried:
    """How one way has ended. `why`: what has failed on it, if something has, even where the run is gone."""

    why: str = ""


class Gone(Tried):
    """The devices are free of the run, and its page says so."""


class NotThisWay(Tried):
    """It is still there: the next way may be tried, or it goes on."""


class Unknown(Tried):
    """Nobody can tell, and its page says so: nothing more is tried until it has been found out."""


class Eviction:
    """One attempt to evict a run, in the switch to the turn that is wanted.

    `layout`: the page over which its hooks hand the devices to the next run.
    """

    def __init__(
        self, station: Station, run: str, wanted: Wanted, recalled: asyncio.Event, layout: Layout | None
    ) -> None:
        self._at, self._run, self._fence, self._recalled = station, run, wanted.fence, recalled
        self._ways, self._empties = wanted.ways or station.ways, station.empties(wanted)
        self._page, self._layout, self._bytes, self._tried_outside = station.page, layout, 0, False

    async def attempt(self) -> Outcome:
        """Try each way until the devices are free. The journal says at every moment what was begun."""
        verbs: dict[str, Callable[[], Awaitable[Tried]]] = {
            "hooks": self._by_hooks,
            "cuda": self._from_outside,
            "kill": self._by_kill,
        }
        if self._at.is_empty_of(self._stay):
            self._page.drop(self._run)
            return Outcome(True)
        ways, reasons = self._ways, list[str]()
        if self._stay.state is RunState.POISONED:
            ways = tuple(way for way in ways if way == "kill")
            reasons.append("its state can neither be saved nor brought back")
        for way in ways:
            tried = await verbs[way]()
            if tried.why and tried.why not in reasons:
                reasons.append(tried.why)
            if isinstance(tried, Gone):
                self._note_detours(way, reasons)
                return Outcome(True, self._bytes)
            if isinstance(tried, Unknown):
                break
            if self._recalled.is_set():
                self._back()
                return Outcome(False, self._bytes, recalled=True)
        self._back()
        reason = "; ".join(reasons) or f"it has no hooks, and only {', '.join(self._ways)} may move it"
        return Outcome(False, self._bytes, f"run {self._run} cannot be evicted: {reason}")

    def _note_detours(self, way: str, reasons: list[str]) -> None:
        if reasons:
            log.warning("run %s was evicted by %s, since %s", self._run, way, "; ".join(reasons))

    @property
    def _stay(self) -> Stay:
        return self._page.stays[self._run]

    def _put(self, state: RunState, **changes: object) -> None:
        self._page.put(replace(self._stay, state=state, **changes))  # type: ignore[arg-type]

    def _back(self) -> None:
        """Nothing was moved as a whole: the run is loaded; `hooked` says what its hooks may have begun."""
        if self._stay.state is RunState.SNAPSHOTTING:
            self._put(RunState.LOADED, image="")

    def _gone(self, image: str = "", why: str = "") -> Tried:
        """The devices are free of it: it is saved, or had nothing here."""
        if image or self._stay.hooked or self._at.registry.moves_itself(self._run, self._at.name):
            self._put(RunState.SAVED, image=image, bytes=self._bytes or self._stay.bytes)
        else:
            self._page.drop(self._run)
        return Gone(why)

    def _unknown(self, why: str) -> Tried:
        self._put(RunState.UNKNOWN)
        return Unknown(why)

    # ------------------------------------------------------------ hooks

    async def _by_hooks(self) -> Tried:
        if not self._at.registry.moves_itself(self._run, self._at.name):
            return NotThisWay()
        subject = replace(await self._at.hooked(self._run, self._fence), layout=self._layout)
        moves = bool(subject.targets or subject.servers)
        self._put(RunState.SNAPSHOTTING, hooked=self._stay.hooked or moves)
        used = self._at.used
        report = await unless(self._recalled, self._at.hooks.save(subject, self._at.hook_deadline))
        if report is None:
            return NotThisWay()
        self._bytes += report.bytes or max(0, used - self._at.used)
        if report.failures:
            return NotThisWay(report.reason)
        if left := await self._at.left(self._run):
            return NotThisWay(f"{left} after its hooks")
        return await self._from_outside() if self._empties else self._gone()

    # ------------------------------------------------------------ from outside

    async def _from_outside(self) -> Tried:
        if self._tried_outside:
            return NotThisWay()
        self._tried_outside = True
        if not self._at.accelerator.exclusive and (other := self._at.elsewhere(self._run)):
            return NotThisWay(f"in use on {other}")  # what would be moved are whole processes
        if why := self._at.hidden(self._run):
            return NotThisWay(why)
        image = f"{self._run}@{self._fence}"
        self._put(RunState.SNAPSHOTTING, image=image)
        subject = self._at.subject(self._run, self._fence, image)
        estimate = self._at.accelerator.estimate(subject)
        if not estimate.device_bytes:
            return self._gone()
        try:
            with self._at.budget.room(estimate.host_bytes, estimate.groups):
                return await self._move(subject)
        except SnapshotFailed as failure:
            return NotThisWay(str(failure))

    async def _move(self, subject: Subject) -> Tried:
        deadline = self._at.deadline(subject)
        subject, held = await self._lock_all(subject, deadline)
        report = await self._at.accelerator.save(subject, deadline) if held.ok else held
        why = report.reason or await self._at.left(self._run, subject.image)
        if not why:
            self._bytes += report.bytes
            return self._gone(subject.image)
        if held.untouched:
            self._back()
            return NotThisWay(why)
        return await self._undo(subject, deadline, why)

    async def _lock_all(self, subject: Subject, deadline: float) -> tuple[Subject, Report]:
        """Lock every process, look again, and lock what has appeared meanwhile, before anything is saved."""
        for _ in range(LOOKS):
            report = await self._at.accelerator.lock(subject, deadline)
            again = self._at.subject(self._run, self._fence, subject.image)
            if not report.ok or again.targets == subject.targets:
                return subject, report
            subject = again
        return subject, Report(failures={f"run {self._run}": "new processes keep appearing"})

    async def _undo(self, subject: Subject, deadline: float, why: str) -> Tried:
        """Saving failed: find out what is true, and bring the run back to one state."""
        match await self._at.accelerator.observe(subject, deadline):
            case Truth.LOADED | Truth.ABSENT:
                return await self._let_go(subject, deadline, why)
            case Truth.SAVED if not await self._at.left(self._run, subject.image):
                return self._gone(subject.image, why)
            case Truth.SAVED | Truth.PARTIAL:
                if (await self._at.accelerator.restore(subject, deadline)).ok:
                    return await self._let_go(subject, deadline, why)
                return self._unknown(why)
            case _:
                return self._unknown(why)

    async def _let_go(self, subject: Subject, deadline: float, why: str) -> Tried:
        """A run that stays locked is not loaded: let in, it would stand still for its whole turn."""
        report = await self._at.accelerator.unlock(subject, deadline)
        if not report.ok:
            return self._unknown(f"{why}; it cannot be let go on: {report.reason}")
        await self._at.accelerator.discard(subject)
        return NotThisWay(why)

    # ------------------------------------------------------------ kill

    async def _by_kill(self) -> Tried:
        if other := self._at.elsewhere(self._run):
            return NotThisWay(f"in use on {other}")  # and so must not be disturbed
        run = self._at.registry.runs.get(self._run)
        roots = [one.found.pid for one in self._at.registry.processes(self._run)]
        if run is None or not roots:
            return NotThisWay("no process of it is known here that could be killed")
        if untagged := [pid for pid in roots if not processes.tagged(pid, run.name, run.job)]:
            return NotThisWay(
                f"process {untagged[0]} was started without SLICELOCK_JOB or SLICELOCK_RUN in its environment"
                ", so it is not certain to be the run's"
            )
        owed = self._at.owed(self._run, self._fence)
        try:
            await processes.end(roots, self._at.registry.uids, KILL_PATIENCE_S)
            await self._at.accelerator.wipe(self._at.devices, owed)
        except AgentError as failure:
            return NotThisWay(str(failure))
        self._page.drop(self._run)
        return Gone()
