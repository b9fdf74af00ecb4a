"""Asks for a turn for a run that cannot ask: one that touched its GPU after its yield and froze in that call.

A run that the driver has saved blocks in its next call of CUDA. If the call keeps the interpreter's lock, the
process stops beating; else it beats on, and the accelerator sees that it waits. It then gets a turn like
anyone else, in a lane of its own, and its call goes on; when it breathes again, the turn is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from slicelock.errors import SlicelockError, StoreError
from slicelock.states import RunState
from slicelock.wire import WAITING, Acquire, AcquireReply, Cancel, Yield
from slicelock_agent import processes
from slicelock_agent.backends.base import Truth
from slicelock_agent.registry import Registry, RunProcess
from slicelock_agent.store import Runner
from slicelock_agent.switcher import Switcher

log = logging.getLogger("slicelock_agent")

LOOK_S = 2.0
SILENCE_S = 20.0
"""A process that was not heard of for so long, although Redis answers, is not breathing. It beats at least
every 5 s.
"""
BREATH_S = 60.0
"""How long a turn is kept for a run that does not breathe even so: something else is wrong with it."""
FIRST_REST_S, LONGEST_REST_S = 60.0, 3600.0
"""After a turn in which it did not, it is not asked for so long; doubled each time."""
LEASE_MS, WAIT_MS = 60_000, 15_000
MEMBER = "agent"


@dataclass(slots=True)
class Plea:
    """A request in a run's name, its `k`-th in the agent's lane. `held_at` is 0 before it has begun."""

    run: str
    job: str
    slice: str
    process: str
    k: int
    held_at: float = 0.0


@dataclass(slots=True)
class Rest:
    """When a run may be asked for again, and how long it rests the next time."""

    until: float = 0.0
    pause: float = FIRST_REST_S


@dataclass(eq=False)
class Advocate:
    """Looks for runs that have frozen on this node's slices, and follows up what it asked for."""

    store: Runner
    node: str
    registry: Registry
    switchers: Callable[[], Iterable[Switcher]]
    in_touch_since: Callable[[], float]
    """Since when Redis has answered without an outage; in one nobody can be heard of."""
    clock: Callable[[], float] = time.monotonic
    pleas: dict[tuple[str, str], Plea] = field(default_factory=dict[tuple[str, str], Plea])
    _rests: dict[str, Rest] = field(default_factory=dict[str, Rest])
    _waiting: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def lane(self) -> str:
        """The lane of these turns; each node has its own, so that agents do not take each other's places."""
        return f"agent-{self.node}"[:64]

    async def run(self) -> None:
        """Look for ever. While Redis does not answer nothing can be asked; the pulse says why."""
        while True:
            with contextlib.suppress(SlicelockError):
                await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Ask for those that have frozen since, and go on with what was asked."""
        for switcher in self.switchers():
            for run in [*self._saved_from_outside(switcher), *self._unknown(switcher)]:
                self.registry.tell_again(run)
                asked = (run, switcher.at.name) in self.pleas
                if (
                    not asked
                    and (frozen := self._frozen(run, switcher))
                    and await self._is_saved(run, switcher)
                ):
                    self._begin(run, switcher.at.name, frozen)
        for key, plea in list(self.pleas.items()):
            if not await self._go_on(plea):
                del self.pleas[key]

    def _saved_from_outside(self, switcher: Switcher) -> list[str]:
        stays = () if switcher.at.accelerator.exclusive else switcher.at.page.stays.values()
        return [stay.run for stay in stays if stay.state is RunState.SAVED and stay.image]

    def _unknown(self, switcher: Switcher) -> list[str]:
        """Runs of the slice that an agent whose journal is gone may have saved."""
        at, runs = switcher.at, self.registry.runs
        here = [run for run in runs if any(at.name in one.slices for one in self.registry.processes(run))]
        unknown = [run for run in here if at.may_be_saved(run) and not at.moved_elsewhere(run)]
        return [] if at.accelerator.exclusive else [run for run in unknown if run != switcher.wanted.run]

    async def _is_saved(self, run: str, switcher: Switcher) -> bool:
        """Whether the driver has saved it, which it is asked when nothing else tells."""
        at = switcher.at
        if run in at.page.stays:
            return True
        subject = at.subject(run, at.page.top)
        saved = await at.accelerator.strays(subject, at.deadline(subject)) in (Truth.SAVED, Truth.PARTIAL)
        if not saved:
            self._put_off(run)
        return saved

    def _frozen(self, run: str, switcher: Switcher) -> RunProcess | None:
        """A process of the run that is alive, could go on, and does not."""
        if self.clock() < self._rest(run).until:
            return None
        here, in_touch = self.registry.processes(run), self.clock() - self.in_touch_since() > SILENCE_S
        frozen = (one for one in here if (in_touch and self._is_silent(one)) or self._waits(one, switcher))
        return next(frozen, None)

    def _is_silent(self, one: RunProcess) -> bool:
        stopped = processes.state_of(one.found.pid) in "Tt"
        return not stopped and self.clock() - one.heard_at > SILENCE_S

    def _waits(self, one: RunProcess, switcher: Switcher) -> bool:
        """Whether the process waits for its device, at this look and at the last one."""
        pid = one.found.pid
        if not switcher.at.accelerator.waits(pid):
            self._waiting.pop(pid, None)
            return False
        return self.clock() - self._waiting.setdefault(pid, self.clock()) >= LOOK_S / 2

    def _begin(self, run: str, name: str, process: RunProcess) -> None:
        log.warning(
            "run %s has frozen: it used a GPU of slice %s without a turn; it is asked for in its name",
            run,
            name,
        )
        job = self.registry.runs[run].job or run
        self.pleas[run, name] = Plea(run, job, name, str(process.identity), 1)

    async def _go_on(self, plea: Plea) -> bool:
        """Ask, or ask how it stands; whether there is anything to wait for."""
        self.registry.tell_again(plea.run)
        breathes = self._breathes(plea)
        if breathes or (plea.held_at and self.clock() - plea.held_at > BREATH_S):
            await self._end(plea, breathes)
            return False
        try:
            reply = await self._ask(plea)
            if reply.outcome == "ENDED" and not plea.held_at and reply.newest >= plea.k:
                plea.k = reply.newest + 1  # an earlier turn, perhaps of an agent that has died since
                reply = await self._ask(plea)
        except StoreError:
            raise
        except SlicelockError as failure:
            log.warning("run %s cannot be asked for: %s", plea.run, failure)
            return False
        return self._heed(plea, reply)

    def _breathes(self, plea: Plea) -> bool:
        here = self.registry.processes(plea.run)
        at = next((one.at for one in self.switchers() if one.at.name == plea.slice), None)
        return not any(self._is_silent(one) or (at and at.accelerator.waits(one.found.pid)) for one in here)

    async def _ask(self, plea: Plea) -> AcquireReply:
        return await self.store.run(
            Acquire(
                run=plea.run,
                job=plea.job,
                lane=self.lane,
                k=plea.k,
                member=MEMBER,
                members=1,
                slices=(plea.slice,),
                process=plea.process,
                lease_ms=LEASE_MS,
                wait_ms=WAIT_MS,
                phase="thaw",
            )
        )

    def _heed(self, plea: Plea, reply: AcquireReply) -> bool:
        if reply.outcome == "HELD":
            plea.held_at = plea.held_at or self.clock()
            return True
        if reply.outcome in WAITING:
            return True
        self._put_off(plea.run)
        return False

    async def _end(self, plea: Plea, breathes: bool) -> None:
        if breathes:
            self._rests.pop(plea.run, None)
            log.info("run %s goes on", plea.run)
        else:
            self._put_off(plea.run)
            log.warning("run %s does not go on even with its GPU; it gets no turn for a while", plea.run)
        if plea.held_at:
            await self.store.run(Yield(plea.run, self.lane, plea.k, MEMBER))
        else:
            await self.store.run(Cancel(plea.run, plea.job, self.lane, plea.k, "the run goes on by itself"))

    def _put_off(self, run: str) -> None:
        rest = self._rest(run)
        rest.until, rest.pause = self.clock() + rest.pause, min(rest.pause * 2, LONGEST_REST_S)

    def _rest(self, run: str) -> Rest:
        return self._rests.setdefault(run, Rest())
