"""A turn: a run's time on its slices, as the program sees it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NoReturn

from slicelock.client import tracing
from slicelock.client.absence import Absences
from slicelock.client.ground import Ground
from slicelock.companion import LoopInbox, Party, ThreadInbox
from slicelock.errors import ConfigurationError, LeaseLost, TurnError
from slicelock.protocol import Part, Wish, abandon, give_back, lose
from slicelock.protocol.refusals import named

log = logging.getLogger("slicelock")

ANEW = "Ask for a new one, with turn() or acquire()."


def check_timeout(timeout: float | None) -> None:
    """Refuse seconds of waiting that cannot be; raises ConfigurationError."""
    if timeout is not None and not timeout >= 0:  # not a number neither
        raise ConfigurationError(f"A timeout of {timeout:g} s is not possible.", advice="Use 0 or more.")


class BaseTurn(ABC):
    """What turns of both kinds have in common."""

    def __init__(self, ground: Ground, wish: Wish, on_lost: Callable[[Any], None] | None) -> None:
        self._ground, self._on_lost = ground, on_lost
        self._part = Part(wish, ground.party.who.run if ground.party else "")
        self._held = self._away = False
        self._since = 0.0
        self._trace: tracing.Trace | None = None
        self._left_with: tuple[str, ...] = ()
        self.absences = Absences()  # shared by the `away` blocks of its tasks

    # ------------------------------------------------------------ facts

    @property
    def slices(self) -> tuple[str, ...]:
        """The slices that this turn still has."""
        return self._part.slices_left if self._held else ()

    @property
    def fences(self) -> Mapping[str, int]:
        """Each slice's fencing token: it rises with every grant of the slice."""
        return self._part.fences

    @property
    def fence(self) -> int:
        """The fence of the turn's slice; of several, the highest. 0 when nothing is shared (mode `off`)."""
        return max(self._part.fences.values(), default=0)

    @property
    def run(self) -> str:
        """The run whose turn it is; empty when nothing is shared."""
        return self._part.run

    @property
    def id(self) -> str:
        """The request's id in Redis: run, lane and number."""
        return self._part.id

    @property
    def phase(self) -> str:
        return self._part.wish.phase

    @property
    def waited_s(self) -> float:
        """Seconds of waiting before the turn, without a switch that nothing holds up."""
        return self._part.waited_s

    @property
    def moved(self) -> bool:
        """Whether device state was moved for this turn."""
        return self._part.moved

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for one of the slices: a reason to yield at the next safe point."""
        return self._part.wanted

    @property
    def unconfirmed(self) -> bool:
        """Whether Redis has not been reached for longer than the lease; with agents, the turn goes on."""
        return self._part.unconfirmed

    def __repr__(self) -> str:
        state = "held" if self._held and not self._closed else "lost" if self._part.loss else "not held"
        return f"<{type(self).__name__} {named(self._part)}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or sent to another process: it belongs to whoever took it. "
            "Send its `fence`, or the Slice, on which others take turns of their own."
        )

    @property
    def loss(self) -> LeaseLost | None:
        """Why the turn is over against its holder's will; None as long as it is not."""
        return self._part.loss

    @property
    def is_away(self) -> bool:
        """Whether the turn was given up for a while, to be had again."""
        return self._away

    @property
    def over(self) -> bool:
        """Whether there is nothing to yield: it was yielded, could not be had again, or is a parent's."""
        return not self._held or self._closed or self.foreign

    @property
    def foreign(self) -> bool:
        """Whether it is the turn of the process that this one was forked from."""
        return self._ground.party is not None and self._ground.party.foreign

    @property
    def _closed(self) -> bool:
        """Whether the process has ended its part in the pool, which yields what is held."""
        return self._ground.party is not None and self._ground.party.closed

    # ------------------------------------------------------------ for both kinds

    def check(self) -> None:
        """Raise LeaseLost when the turn is over against its holder's will, TurnError when it was yielded."""
        party, part = self._ground.party, self._part
        if self.foreign:
            raise LeaseLost(f"The turn on {named(part)} belongs to the parent process, not to this child.")
        if party and part.agentless and part.deadline <= time.monotonic() and not part.loss and self._held:
            lose(party.ledger, part, "expired", "it could not be renewed in time")
            self.notice(part)
        if part.loss:
            raise part.loss
        if not self._held or self._closed:
            raise TurnError(f"There is no turn on {named(part)} any more: it was yielded.", advice=ANEW)

    def _next_part(self, timeout: float | None) -> None:
        """Ask for the same again, for the slices still had: after being away."""
        self._refuse_child()
        if not self._away:
            raise TurnError(
                f"The turn on {named(self._part)} has not been left, so there is no way back.",
                advice="Call leave() before come_back(), or use away().",
            )
        check_timeout(timeout)
        self._away = False
        wish = replace(self._part.wish, slices=self._left_with, timeout=timeout, wait=True)
        self._part = Part(wish, self._part.run)

    def _refuse_child(self) -> None:
        if self._ground.party:
            self._ground.party.refuse_child()

    @contextmanager
    def _leaving(self, phase: str) -> Generator[None]:
        self._refuse_child()
        held, self._left_with = self._held, self._part.slices_left
        log.debug("away from %s for %s", named(self._part), phase)
        try:
            yield
        finally:  # also when interrupted: what has been given up by then is to be had again
            self._away |= held and not self._held and self._part.loss is None

    def _begun(self) -> None:
        self._held, self._since = True, time.monotonic()
        if self._trace:
            self._trace.begun()
        if self._ground.observer:
            self._ground.observer.meter.enter(self._since)

    def _stop_meter(self) -> None:
        if self._ground.observer and self._held:
            self._ground.observer.meter.leave(self.phase, self._since, time.monotonic())

    def _let_go(self, slices: tuple[str, ...]) -> tuple[str, ...]:
        """Have them no more here; what the yield call names: none for the whole turn. LeaseLost when it is
        over already, TurnError when there is nothing to yield."""
        if self._part.loss:
            self._held = False
            raise self._part.loss
        if not self._held:
            raise TurnError(f"There is no turn on {named(self._part)} to yield.", advice=ANEW)
        if slices and (unknown := set(slices).difference(self._part.slices_left)):
            raise TurnError(
                f"This turn has no slice {' '.join(sorted(unknown))}; it has {' '.join(self.slices)}."
            )
        if not slices or set(slices) == set(self._part.slices_left):
            self._stop_meter()
            self._held = False
            self._end_trace(None)
            return ()
        if self._ground.party is None:  # else the ledger notes it, with the call
            self._part.given_back += tuple(sorted(slices))
        return tuple(sorted(slices))

    def _party_to_tell(self) -> Party | None:
        """Who tells Redis of a yield; none when nothing is shared, when that was told at the end of the
        process, or when it is a parent process's turn."""
        party = self._ground.party
        return None if party is None or party.closed or party.foreign else party

    def _yielded(self, party: Party, waiters: int) -> int:
        if party.ledger.undelivered:
            party.companion.wake()  # it may be this one
        return waiters

    def _interrupted(self, failure: BaseException) -> None:
        """A call failed, perhaps between two steps: what Redis may know and nobody here holds, ends."""
        party = self._ground.party
        if isinstance(failure, LeaseLost):
            self._set_lost()
        if not self._held:
            self._end_trace(failure)
        if party and not party.foreign and not self._held:
            abandon(party.ledger, self._part)
            party.companion.wake()  # there may be a call to deliver

    def notice(self, part: Part) -> None:
        """The companion says that a part was lost."""
        if part is not self._part:
            return
        self._end_trace(part.loss)
        self._set_lost()
        if self._on_lost and self._ground.party:
            self._call_back(self._ground.party)

    def _end_trace(self, failure: BaseException | None) -> None:
        trace, self._trace = self._trace, None
        if trace:
            party = self._ground.party
            trace.end(self._part, party.who.job if party else "", failure)

    async def leave_in_loop(self, phase: str = "away") -> None:
        """As `leave`, without blocking the running event loop: also for a `Turn` that was taken around it."""
        with self._leaving(phase):
            await self._yield_in_loop()

    async def come_back_in_loop(self, timeout: float | None = None) -> None:
        """As `come_back`, likewise. A cancellation withdraws the request."""
        self._next_part(timeout)
        await self._acquire_in_loop()

    async def _yield_in_loop(self, *slices: str) -> int:
        try:
            given = self._let_go(slices)
            if (party := self._party_to_tell()) is None:
                return 0
            if party.evictor and not given:
                await party.evictor.ask_in_loop(self._part.slices_left, self._part.lane)
            flow = give_back(party.ledger, self._part, given)
            return self._yielded(party, await party.async_store().drive(flow))
        except BaseException as failure:
            self._interrupted(failure)
            raise

    async def _acquire_in_loop(self) -> None:
        self._trace = tracing.begin()
        try:
            if party := self._ground.party:
                await party.start_async()
                self._part.owner, self._part.inbox = weakref.ref(self), (inbox := LoopInbox())
                await party.async_store().drive(party.acquire(self._part), inbox)
            self._begun()
        except BaseException as failure:
            self._interrupted(failure)
            raise

    @abstractmethod
    def _set_lost(self) -> None: ...

    @abstractmethod
    def _call_back(self, party: Party) -> None: ...


class Turn(BaseTurn):
    """A turn of a `Slice`."""

    def __init__(self, ground: Ground, wish: Wish, on_lost: Callable[[Turn], None] | None = None) -> None:
        super().__init__(ground, wish, on_lost)
        self._events: dict[str, threading.Event] = {}

    @property
    def lost(self) -> threading.Event:
        """Set as soon as it is known that the turn is over against its holder's will."""
        # Made when somebody looks: to make one takes as long as the rest of a turn's own work.
        return self._events.get("lost") or self._events.setdefault("lost", threading.Event())

    def yield_(self, *slices: str) -> int:
        """Give the turn up, or only some of its slices; how many requests wait for them.

        Raises LeaseLost when it was over already. When Redis is away, the yield is delivered later.
        """
        try:
            given = self._let_go(slices)
            if (party := self._party_to_tell()) is None:
                return 0
            if party.evictor and not given:
                party.evictor.ask(self._part.slices_left, self._part.lane)
            return self._yielded(party, party.store.drive(give_back(party.ledger, self._part, given)))
        except BaseException as failure:
            self._interrupted(failure)
            raise

    def leave(self, phase: str = "away") -> None:
        """Yield for a while: `come_back` asks for the same slices again. See `slicelock.away`."""
        with self._leaving(phase):
            self.yield_()

    def come_back(self, timeout: float | None = None) -> None:
        """Take the next turn on the slices that were left; raises as `Slice.acquire`."""
        self._next_part(timeout)
        self.acquire()

    def acquire(self) -> None:
        """Wait until the turn begins. `Slice.acquire` has done it already."""
        self._trace = tracing.begin()
        try:
            if party := self._ground.party:
                party.start()
                self._part.owner = weakref.ref(self)
                self._part.inbox = inbox = ThreadInbox(party.companion.ear)
                try:
                    party.store.drive(party.acquire(self._part), inbox)
                finally:
                    inbox.close()
            self._begun()
        except BaseException as failure:
            self._interrupted(failure)
            raise

    def _set_lost(self) -> None:
        self.lost.set()

    def _call_back(self, party: Party) -> None:
        party.companion.hooks.call(self._run_callback)

    def _run_callback(self) -> None:
        assert self._on_lost
        self._on_lost(self)


class AsyncTurn(BaseTurn):
    """A turn of an `AsyncSlice`. `lost` can be awaited."""

    def __init__(
        self, ground: Ground, wish: Wish, on_lost: Callable[[AsyncTurn], None] | None = None
    ) -> None:
        super().__init__(ground, wish, on_lost)
        self.lost = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def yield_(self, *slices: str) -> int:
        """Give the turn up, or only some of its slices; how many requests wait for them.

        Raises LeaseLost when it was over already. When Redis is away, or the task is cancelled meanwhile, the
        yield is delivered later.
        """
        return await self._yield_in_loop(*slices)

    async def leave(self, phase: str = "away") -> None:
        """Yield for a while: `come_back` asks for the same slices again. See `slicelock.away`."""
        await self.leave_in_loop(phase)

    async def come_back(self, timeout: float | None = None) -> None:
        """Take the next turn on the slices that were left; raises as `AsyncSlice.acquire`."""
        await self.come_back_in_loop(timeout)

    async def acquire(self) -> None:
        """Wait until the turn begins. `AsyncSlice.acquire` has done it already."""
        await self._acquire_in_loop()

    def _set_lost(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.lost.set)
        except RuntimeError:  # the loop has ended, and with it whoever could look
            return

    def _call_back(self, party: Party) -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_lost, self)  # type: ignore[arg-type]
        except RuntimeError:
            return


current: ContextVar[Turn | AsyncTurn | None] = ContextVar("slicelock_turn", default=None)
