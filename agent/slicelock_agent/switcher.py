"""Switches one slice on this node: takes what is wanted, and does one step of the switch after the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from slicelock.errors import SlicelockError
from slicelock.states import RunState, SliceState
from slicelock_agent import arrival, loading, taking_over
from slicelock_agent.eviction import Eviction
from slicelock_agent.progress import Progress, bytes_used, progress_of
from slicelock_agent.reconcile import (
    ON_DEVICE,
    REST,
    UNFINISHED,
    Action,
    Admitted,
    Here,
    Step,
    Wanted,
    next_action,
)
from slicelock_agent.result import Outcome, Result
from slicelock_agent.station import Station
from slicelock_agent.switch import Switch
from slicelock_agent.utilisation import Utilisation

log = logging.getLogger("slicelock_agent")

ROOM_PATIENCE_S, ROOM_LOOK_S = 10.0, 0.25
"""How long a switch waits for memory that somebody else has, before its request goes back to its place."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
ALWAYS = frozenset({Step.FIND_OUT, Step.DROP})
"""Steps that are done whatever is wanted; no other begins once the switch has ended."""
RELOADS = 5
"""How often in a row a run's hooks may fail to reload before its request fails; the run itself is kept."""


class Switcher:
    """One slice's switches. `tell` takes a result to be sent at once, `post` asks for a beat."""

    def __init__(self, station: Station, tell: Callable[[Result], None], post: Callable[[], None]) -> None:
        self.at, self._tell, self._post = station, tell, post
        self._busy = Utilisation()
        self._switch = Switch(station, Wanted(), self._busy, tell)
        self.devices: dict[str, Any] = {}
        """What was last read of the devices, for people."""
        self.doing, self._at_work = "starting", REST
        self._progress: Progress | None = None
        self._look, self._recalled = asyncio.Event(), asyncio.Event()
        self._stopping, self._idle, self._pause = False, asyncio.Event(), 0.0
        self._reloads: Counter[str] = Counter()
        """How often in a row each run's hooks have failed to reload."""
        self._looked_at: set[str] = set()
        """Runs that have been looked at when they came back for the first time."""

    # ------------------------------------------------------------ what is wanted, and what is shown

    @property
    def wanted(self) -> Wanted:
        """What the last beat brought."""
        return self._switch.wanted

    def want(self, wanted: Wanted, *, again: bool = False) -> None:
        """Take what a beat brought. What moves nothing is done before this returns.

        `again`: say the switch's result once more if it is still asked for, in case Redis has forgotten it.
        """
        if wanted.turn == self.wanted.turn:
            self._switch.wanted = wanted
        else:
            self._switch = Switch(self.at, wanted, self._busy, self._tell)
        if self.doing:
            if self._is_recalled():
                self._recalled.set()
        elif not self._switch.ended:
            self._at_once()
        elif again:
            self._switch.tell_again()

    def look(self) -> None:
        """Something has changed beside what is wanted: a process has ended, or may be seen now."""
        self._look.set()

    def saw(self, devices: dict[str, Any]) -> None:
        """Take what was read of the devices."""
        self.devices = devices
        self._busy.saw(devices)

    def shown(self) -> dict[str, Any]:
        """What a beat reports of this slice."""
        page, turn = self.at.page, self.at.page.admitted
        if not turn or page.state(turn.run) is not RunState.LOADED or self.at.registry.dead([turn.run]):
            turn = Admitted("", "", 0, 0)
        on_device = ON_DEVICE | UNFINISHED
        loaded = [stay.run for stay in page.stays.values() if stay.state in on_device]
        saved = [stay.run for stay in page.stays.values() if stay.state is RunState.SAVED]
        told = {**asdict(turn), "top": page.top, "doing": self.doing, "saved": saved, "loaded": loaded}
        if self._progress:
            told["progress"] = self._progress.told(bytes_used(self.devices))
        return {**told, "devices": self.devices} if self.devices else told

    def holds(self, run: str) -> bool:
        """Whether the run has a turn here, as far as is known."""
        return self.wanted.run == run and self.wanted.state == SliceState.HELD

    def stop(self) -> None:
        """Begin nothing more; hooks are waited for no longer."""
        self._stopping = True
        self._recalled.set()
        self._look.set()

    async def stopped(self) -> None:
        """Return when no step is under way."""
        await self._idle.wait()

    # ------------------------------------------------------------ steps that move nothing

    def _at_once(self) -> None:
        """Do what moves nothing without a task of its own; leave the rest to `run`."""
        here = self.at.here(self.wanted.run, passing=self.wanted.asks)
        action = self._next(here)
        admits = action.step is Step.ADMIT and not self.at.may_be_saved(action.run)
        if admits and not self.at.no_room(action.run, self.wanted):
            self._attempt_admit(here.gone)
        elif action is not REST:
            self._look.set()

    def _attempt_admit(self, gone: tuple[str, ...] = ()) -> None:
        """Let the wanted run in, or say why not: either ends the switch."""
        run = self.wanted.run
        try:
            if reason := self._objection(run):
                return self._fail(Step.REFUSE, run, reason)
            self._let_in(gone)
        except ValueError as failure:
            self._fail(Step.ADMIT, run, f"it cannot be admitted: {failure}")
        except (SlicelockError, OSError) as failure:
            # This node's trouble, such as a full disk, is not the run's fault.
            self._fail(Step.EVICT, "", f"run {run} cannot be admitted: {failure}")
        else:
            self._reloads.pop(run, None)
            self._switch.ready()

    def _objection(self, run: str) -> str:
        """Why a run must not be let in. When it comes back it is looked at once more, and then no more: a
        turn with nothing to move is quick.
        """
        if run not in self.at.page.stays:
            self._looked_at.discard(run)
            return self.at.objection(run, self.wanted)
        reason = "" if run in self._looked_at else self.at.astray(run, self.wanted)
        if not reason:
            self._looked_at.add(run)
        return reason

    def _let_in(self, gone: tuple[str, ...] = ()) -> None:
        """The fence goes into the journal before the run gets to the devices."""
        turn = self.wanted.turn
        if self.at.page.admitted != turn or turn.run not in self.at.page.stays or gone:
            self.at.page.admit(turn, gone)
        self.at.accelerator.admit(self.at.subject(turn.run, turn.fence))

    # ------------------------------------------------------------ one step after the other

    async def run(self) -> None:
        """Work for ever. Whatever fails ends the switch with its reason, never this task."""
        await taking_over.take_up_devices(self.at)
        self._look.set()
        while True:
            self.doing = ""
            if self._stopping:
                self._idle.set()
            await self._look.wait()
            self._look.clear()
            await self._work()

    async def _work(self) -> None:
        try:
            while (action := self._next(self.at.here(self.wanted.run))) is not REST:
                self.doing = f"{action.step} {action.run}".strip()
                self._at_work = action
                stay = self.at.page.stays.get(action.run)
                self._progress = progress_of(action, stay, bytes_used(self.devices))
                self._recalled.clear()
                await self._attempt(action)
        finally:
            self.doing, self._at_work, self._progress = "", REST, None
        self._post()

    async def _attempt(self, action: Action) -> None:
        try:
            await self._do(action)
            self._pause = 0.0
        except Exception as failure:  # its reason goes to the request that waits for it
            log.exception("slice %s: %s failed", self.at.name, self.doing)
            reason = f"{action.step} failed: {failure or type(failure).__name__}"
            if action.step not in ALWAYS:
                self._fail(action.step, action.run, reason)
                return
            if self._pause and not self._switch.ended:
                self._fail(Step.EVICT, action.run, reason)  # it may take long: the request goes back
            await self._rest()

    async def _rest(self) -> None:
        """Before a step is tried again that must be done before anything else: 1, 2, 4 … 30 s."""
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S) if self._pause else FIRST_PAUSE_S
        await asyncio.sleep(self._pause)

    def _next(self, here: Here) -> Action:
        """What to do next: nothing more for a switch that has ended."""
        if self._stopping:
            return REST
        action = next_action(self.wanted, here, int(time.time() * 1000))
        return REST if self._switch.ended and action.step not in ALWAYS else action

    def _is_recalled(self) -> bool:
        """Whether the step under way is not wanted any more; only a wait for hooks is interrupted."""
        mine = self.wanted.asks and self.wanted.run == self._at_work.run
        match self._at_work.step:
            case Step.EVICT:
                return mine or not self.wanted.asks
            case Step.RELOAD:
                return not mine
            case _:
                return False

    # ------------------------------------------------------------ each step

    async def _do(self, action: Action) -> None:
        match action.step:
            case Step.FIND_OUT:
                await loading.find_out(self.at, action.run)
            case Step.DROP:
                await loading.drop(self.at, action.run)
            case Step.WIPE:
                log.warning("slice %s: wiping what was written outside any turn", self.at.name)
                await self.at.accelerator.wipe(self.at.devices)
            case Step.EVICT:
                await self._evict(action)
            case Step.RESTORE | Step.RELOAD | Step.ADMIT if why := await self._lacks_room(action):
                self._switch.later(action.run, f"run {action.run} waits for room: {why}")
            case Step.RESTORE:
                self._settle(action, await loading.restore(self.at, action.run, self.wanted.fence))
            case Step.RELOAD:
                self._settle(action, await self._reload(action.run))
            case Step.ADMIT:
                await self._admit(action.run)
            case _:
                self._fail(action.step, action.run, action.reason)

    async def _admit(self, run: str) -> None:
        """Let a run in; one that the page does not know only after it has been looked at."""
        if self.at.may_be_saved(run):
            turn = self.wanted.turn
            why = await taking_over.take_over(self.at, run, turn.fence)
            if self.wanted.turn != turn or run in self.at.page.stays:
                return  # what to do is decided anew
            if why:
                self._switch.later(run, f"run {run} cannot be let in yet: {why}")
                return
        self._attempt_admit()

    async def _lacks_room(self, action: Action) -> str:
        """Wait for room for a run, as long as it is wanted; why there still is none after a while."""
        turn, deadline = self.wanted.turn, time.monotonic() + ROOM_PATIENCE_S
        while why := self.at.no_room(action.run, self.wanted):
            self.doing = f"{action.step} {action.run}: {why}"
            if self._stopping or self.wanted.turn != turn or time.monotonic() > deadline:
                break
            await asyncio.sleep(ROOM_LOOK_S)
        return why

    async def _evict(self, action: Action) -> None:
        """Evict a run, and bring the wanted one back meanwhile: beside it, or into what it frees."""
        wanted = self.wanted
        other = wanted.run != action.run
        beside = other and arrival.possible(self.at, wanted)
        layout = arrival.exchange_layout(self.at, wanted, action.run) if other and not beside else None
        back = arrival.Arrival(self.at, wanted.run, wanted.fence, layout) if beside or layout else None
        left = Outcome(False)
        try:
            left = await Eviction(self.at, action.run, wanted, self._recalled, layout).attempt()
        finally:
            came = await back.end(cleared=left.done) if back else Outcome(True)
            if layout:
                layout.close()
        self._settle(Action(Step.RESTORE, wanted.run), came)
        if came.done:
            self._settle(action, left)

    async def _reload(self, run: str) -> Outcome:
        self._let_in()
        return await loading.reload(self.at, run, self.wanted.fence, self._recalled)

    # ------------------------------------------------------------ how a step has ended

    def _settle(self, action: Action, outcome: Outcome) -> None:
        """Go on from a step's end, in the switch of now: another may have begun during a step."""
        self._switch.count(action, outcome)
        if outcome.kept:
            self._switch.later(action.run, outcome.reason)
        elif not outcome.done and not outcome.recalled:
            self._fail(action.step, action.run, outcome.reason)

    def _fail(self, step: Step, run: str, reason: str) -> None:
        """End the switch, if it still asks. Only a run whose page says that it is lost is told as lost."""
        match step:
            case Step.EVICT | Step.WIPE | Step.BLOCK:
                self._switch.fail("evict", run, reason)
            case Step.RESTORE if self.at.page.state(run) is RunState.LOST:
                self._switch.fail("restore", run, reason)
            case Step.RESTORE:
                self._switch.later(run, reason)
            case Step.RELOAD if self._may_reload_again(run):
                self._switch.later(run, reason)
            case _:
                self._switch.fail("refused", run, reason)

    def _may_reload_again(self, run: str) -> bool:
        self._reloads[run] += 1
        if self._reloads[run] < RELOADS:
            return True
        del self._reloads[run]
        return False
