"""`away`: inside someone else's training step, give the turn up while the accelerators are not needed."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from slicelock.client.absence import Absence, resolving
from slicelock.client.block import refuse_coroutine, refuse_generator, waits_as_coroutine
from slicelock.client.turn import AsyncTurn, Turn, check_timeout, current
from slicelock.errors import TurnError
from slicelock.keys import check_name
from slicelock.loops import running_loop

log = logging.getLogger("slicelock")

P = ParamSpec("P")
T = TypeVar("T")


def away(*, phase: str = "away", timeout: float | None = None) -> Away:
    """Give the current turn up for the time of a block or of a function's calls, and take the next one after.

    The current turn is that of the innermost `with` block or decorator around; without one, nothing happens.
    The same turn object goes on, with the new fence, for the slices that it still had. What the body raises
    is raised once the turn is back, and so is what interrupts the way out. If it cannot be had again
    (`timeout`, in seconds of waiting), that is raised, and leaving the outer block does nothing. All members
    of a run must call it alike.

    `phase` says what the time away is for, in the log (level `debug`) alone: nobody has a turn meanwhile, and
    the next turn has the phase of the one that was left.

    Concurrent calls in one turn share the time away: the first to begin gives the turn up, the last to end
    takes the next one, and then all of them return.
    """
    check_timeout(timeout)
    return Away(check_name("phase", phase), timeout)


class Away:
    """What `away()` returns: a context manager and a decorator, for plain and for coroutine functions."""

    def __init__(self, phase: str, timeout: float | None) -> None:
        self._phase, self._timeout = phase, timeout
        self._left: list[tuple[Turn | AsyncTurn, Absence] | None] = []

    def __enter__(self) -> None:
        turn = current.get()
        if isinstance(turn, AsyncTurn):
            raise TurnError(
                f"{turn} belongs to an event loop, which a plain `away` would block.",
                advice="Use `async with slicelock.away()`, or a coroutine function.",
            )
        if turn is None or not _can_leave(turn):
            self._left.append(None)
            return
        absence, first = turn.absences.enter()
        try:
            self._leave(turn, absence) if first else _await(absence.gone)
        except BaseException:
            self._return(turn, absence)
            raise
        self._remember(turn, absence)

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (left := self._recall()) and isinstance(left[0], Turn):
            self._return(left[0], left[1])

    def _leave(self, turn: Turn, absence: Absence) -> None:
        with resolving(absence.gone):
            if absence.before:
                _await(absence.before)
            turn.leave(self._phase)

    def _return(self, turn: Turn, absence: Absence) -> None:
        if not turn.absences.end(absence):
            _await(absence.back)
            return
        with resolving(absence.back):
            if absence.before:
                _await(absence.before)
            if turn.is_away:
                turn.come_back(self._timeout)

    async def __aenter__(self) -> None:
        turn = current.get()
        if turn is None or not _can_leave(turn):
            self._left.append(None)
            return
        absence, first = turn.absences.enter()
        try:
            await (self._leave_async(turn, absence) if first else _awaited(absence.gone))
        except BaseException:
            await self._return_async(turn, absence)
            raise
        self._remember(turn, absence)

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if left := self._recall():
            await self._return_async(*left)

    async def _leave_async(self, turn: Turn | AsyncTurn, absence: Absence) -> None:
        with resolving(absence.gone):
            if absence.before:
                await _awaited(absence.before)
            await turn.leave_in_loop(self._phase)

    async def _return_async(self, turn: Turn | AsyncTurn, absence: Absence) -> None:
        if not turn.absences.end(absence):
            await _awaited(absence.back)
            return
        with resolving(absence.back):
            if absence.before:  # else who was interrupted before it had left would go on without a turn
                await _awaited(absence.before)
            if turn.is_away:
                await turn.come_back_in_loop(self._timeout)

    def __call__(self, func: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: the turn is given up for the time of each call."""
        refuse_generator(func, "time away")
        if waits_as_coroutine(func):
            return cast(Callable[P, T], self._around(cast(Callable[P, Awaitable[Any]], func)))

        @functools.wraps(func)
        def while_away(*args: P.args, **kwargs: P.kwargs) -> T:
            with Away(self._phase, self._timeout):
                return refuse_coroutine(func(*args, **kwargs), func, "time away")

        return while_away

    def _around(self, func: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(func)
        async def while_away(*args: P.args, **kwargs: P.kwargs) -> T:
            async with Away(self._phase, self._timeout):
                return await func(*args, **kwargs)

        return while_away

    def _remember(self, turn: Turn | AsyncTurn, absence: Absence) -> None:
        self._left.append((turn, absence))
        current.set(None)

    def _recall(self) -> tuple[Turn | AsyncTurn, Absence] | None:
        """What this block has left; nothing in a child process, which has no way back."""
        left = self._left.pop()
        if left is None:
            return None
        current.set(left[0])
        return None if left[0].foreign else left


def _can_leave(turn: Turn | AsyncTurn) -> bool:
    """Whether it is held, or left by others at the moment, who are not the only ones to want it back. One
    that was lost is left as well: this tells everybody of the loss, not just the first."""
    return not turn.over or ((turn.absences.open or turn.loss is not None) and not turn.foreign)


def _await(outcome: Future[None]) -> None:
    if not outcome.done() and running_loop() is not None:
        raise TurnError(
            "Plain `away` blocks of one event loop would wait for each other.",
            advice="Use `async with slicelock.away()`, or a coroutine function.",
        )
    outcome.result()


async def _awaited(outcome: Future[None]) -> None:
    # Whoever is cancelled meanwhile stops waiting; the outcome is not its own.
    await asyncio.shield(asyncio.wrap_future(outcome))


def current_turn() -> Turn | AsyncTurn | None:
    """The turn of the innermost block or decorated function around; None without one, and while away."""
    return current.get()
