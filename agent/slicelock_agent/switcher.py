"""Switches one slice on this node: takes what is wanted, does one step after the other, and says how it
ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from slicelock.errors import SlicelockError
from slicelock.logs import LogLine
from slicelock.states import RunState, SliceState
from slicelock_agent import arrival, loading, taking_over
from slicelock_agent.eviction import Eviction
from slicelock_agent.progress import Progress, bytes_used, progress_of
from slicelock_agent.reconcile import (
    ON_DEVICE,
    REST,
    UNFINISHED,
    Action,
    Here,
    Stay,
    Step,
    Wanted,
    next_action,
)
from slicelock_agent.result import Outcome, Result
from slicelock_agent.station import Station
from slicelock_agent.utilisation import Utilisation

log = logging.getLogger("slicelock_agent")

ROOM_PATIENCE_S, ROOM_LOOK_S = 10.0, 0.25
"""How long a switch waits for memory that somebody else has, before its request goes back to its place."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
LOG_LATER_S = 0.01
"""Before a result gets its log line: whoever waits for the turn needs the cores first."""
ALWAYS = frozenset({Step.FIND_OUT, Step.DROP})
"""Steps that need no switch; the others end with the one result of their switch."""
RELOADS = 5
"""How often in a row a run's hooks may fail to reload before its request fails; the run itself is kept."""


class Switcher:
    """One slice's switches. `tell` takes a result to be sent at once, `post` asks for a beat."""

    def __init__(self, station: Station, tell: Callable[[Result], None], post: Callable[[], None]) -> None:
        self.at, self.wanted, self.doing = station, Wanted(), "starting"
        self._tell, self._post = tell, post
        self._said: Result | None = None
        self._look, self._recalled = asyncio.Event(), asyncio.Event()
        self._moved, self._bytes, self._begun = False, 0, 0.0
        self.devices: dict[str, Any] = {}
        """What was last read of the devices, for people."""
        self._busy = Utilisation()
        self._at_work, self._progress = REST, cast(Progress | None, None)
        self._stopping, self._idle, self._pause = False, asyncio.Event(), 0.0
        self._reloads: Counter[str] = Counter()
        """How often in a row each run's hooks have failed to reload."""
        self._looked_at: set[str] = set()
        """Runs that have been looked at when they came back for the first time."""

    # ------------------------------------------------------------ what is wanted, and what is shown

    def want(self, wanted: Wanted, *, again: bool = False) -> None:
        """Take what a beat brought. What moves nothing is done before this returns.

        `again`: say the switch's result once more if it is still asked for, in case Redis has forgotten it.
        """
        self._turn_to(wanted)
        if self.doing:
            if self._is_recalled():
                self._recalled.set()
        elif self._said is None:
            self._at_once()
        elif again and wanted.asks and self._still_true(self._said):
            self._tell(self._said)

    def _turn_to(self, wanted: Wanted) -> None:
        if wanted.fence != self.wanted.fence or wanted.turn != self.wanted.turn:
            self._said, self._moved, self._bytes, self._begun = None, False, 0, time.monotonic()
            self.at.steps.clear()
        self.wanted = wanted

    def look(self) -> None:
        """Something has changed beside what is wanted: a process has ended, or may be seen now."""
        self._look.set()

    def saw(self, devices: dict[str, Any]) -> None:
        """Take what was read of the devices."""
        self.devices = devices
        self._busy.saw(devices)

    def shown(self) -> dict[str, Any]:
        """What a beat reports of this slice."""
        page, dead = self.at.page, self.at.registry.dead(self.at.page.stays)
        turn = page.admitted
        stay = page.stays.get(turn.run) if turn else None
        if turn is None or stay is None or stay.state is not RunState.LOADED or turn.run in dead:
            facts: dict[str, Any] = {"run": "", "lane": "", "k": 0, "fence": 0}
        else:
            facts = {"run": turn.run, "lane": turn.lane, "k": turn.k, "fence": turn.fence}
        on_device = ON_DEVICE | UNFINISHED
        loaded = [stay.run for stay in page.stays.values() if stay.state in on_device]
        saved = [stay.run for stay in page.stays.values() if stay.state is RunState.SAVED]
        told = {**facts, "top": page.top, "doing": self.doing, "saved": saved, "loaded": loaded}
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
        action = self._next(self.wanted, here)
        admits = action.step is Step.ADMIT and not self.at.may_be_saved(action.run)
        if admits and not self.at.no_room(action.run, self.wanted):
            self._attempt_admit(here.gone)
        elif action is not REST:
            self._look.set()

    def _attempt_admit(self, gone: tuple[str, ...] = ()) -> None:
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
            self._say("READY", run)

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

    # ------------------------------------------------------------ the other steps

    async def run(self) -> None:
        """Work for ever. Whatever fails ends the switch with its reason, never this task."""
        await self._start()
        while True:
            self.doing = ""
            if self._stopping:
                self._idle.set()
            await self._look.wait()
            self._look.clear()
            await self._work()

    async def _start(self) -> None:
        """After a start: take over what only the devices know, and remove what nobody wants."""
        page, accelerator = self.at.page, self.at.accelerator
        run, top = accelerator.found(self.at.devices)
        # A device that held nothing of a run keeps its name when the rest is saved: the page knows better.
        known = any(stay.state in ON_DEVICE | UNFINISHED for stay in page.stays.values())
        unknown = run if run not in page.stays and not known else ""
        if top > page.top or unknown:
            page.adopt(top, Stay(unknown, RunState.LOADED) if unknown else None)
        needed = {stay.image for stay in page.stays.values()}
        for image in accelerator.images(self.at.name) - needed:
            await accelerator.discard(self.at.subject("", page.top, image))
        self._look.set()

    async def _work(self) -> None:
        try:
            while (action := self._next(self.wanted, self.at.here(self.wanted.run))) is not REST:
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
            if self._pause and self._said is None:
                self._fail(Step.EVICT, action.run, reason)  # it may take long: the request goes back
            await self._rest()

    async def _rest(self) -> None:
        """Before a step is tried again that must be done before anything else: 1, 2, 4 … 30 s."""
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S) if self._pause else FIRST_PAUSE_S
        await asyncio.sleep(self._pause)

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
                self._later(f"run {action.run} waits for room: {why}")
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
                self._later(f"run {run} cannot be let in yet: {why}")
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

    def _settle(self, action: Action, outcome: Outcome) -> None:
        self._bytes += outcome.bytes
        self._moved |= outcome.bytes > 0 or (outcome.done and self._was_moved(action))
        if outcome.kept:
            self._later(outcome.reason)
        elif not outcome.done and not outcome.recalled:
            self._fail(action.step, action.run, outcome.reason)

    def _was_moved(self, action: Action) -> bool:
        """Whether a step moved state although nobody counted bytes, as hooks may not."""
        stay = self.at.page.stays.get(action.run)
        left = action.step is Step.EVICT and stay is not None and stay.state is RunState.SAVED
        return left or action.step is Step.RELOAD

    # ------------------------------------------------------------ deciding and telling

    def _next(self, wanted: Wanted, here: Here) -> Action:
        if self._stopping:
            return REST
        action = next_action(wanted, here, int(time.time() * 1000))
        ended = self._said is not None and wanted.turn == self.wanted.turn
        return REST if ended and action.step not in ALWAYS else action

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

    def _still_true(self, said: Result) -> bool:
        turn, stay = self.at.page.admitted, self.at.page.stays.get(said.run)
        here = turn == self.wanted.turn and stay is not None and stay.state is RunState.LOADED
        return said.outcome != "READY" or here

    def _say(self, outcome: str, run: str, what: str = "", reason: str = "") -> None:
        if not self.wanted.asks:
            return  # the request has ended, or the slice settles and it will be asked for again
        seconds = time.monotonic() - self._begun
        facts = (self.at.name, self.wanted.fence, outcome, run, what, reason)
        steps = tuple(self.at.steps.told())
        self._said = Result(*facts, self._moved, self._bytes, seconds, steps, self._busy.taken())
        self._tell(self._said)
        known = self.at.registry.runs.get(self.wanted.run)
        log_line = partial(self._said.log, self.wanted.run, known.job if known else "")
        asyncio.get_running_loop().call_later(LOG_LATER_S, log_line)

    def _fail(self, step: Step, run: str, reason: str) -> None:
        """Only a run whose page says that it is lost is told as lost."""
        if not self.wanted.asks:
            log.warning(LogLine(reason, slice=self.at.name, run=run))  # there is no result to tell it with
        match step:
            case Step.EVICT | Step.WIPE | Step.BLOCK:
                self._say("FAILED", run, "evict", reason)
            case Step.RESTORE if self._is_lost(run):
                self._say("FAILED", run, "restore", reason)
            case Step.RESTORE:
                self._later(reason)
            case Step.RELOAD if self._may_reload_again(run):
                self._later(reason)
            case _:
                self._say("FAILED", run, "refused", reason)

    def _later(self, reason: str) -> None:
        """The wanted run alone cannot be served now, and nobody is in its way: others may be."""
        self._say("FAILED", self.wanted.run, "later", reason)

    def _is_lost(self, run: str) -> bool:
        stay = self.at.page.stays.get(run)
        return stay is not None and stay.state is RunState.LOST

    def _may_reload_again(self, run: str) -> bool:
        self._reloads[run] += 1
        if self._reloads[run] < RELOADS:
            return True
        del self._reloads[run]
        return False
