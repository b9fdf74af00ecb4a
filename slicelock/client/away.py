"""`away`: inside someone else's training step, give the turn up while the accelerators are not needed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from slicelock.client.block import refuse_generator
from slicelock.client.turn import AsyncTurn, Turn, current
from slicelock.errors import TurnError
from slicelock.keys import check_name

log = logging.getLogger("slicelock")

P = ParamSpec("P")
T = TypeVar("T")


def away(*, phase: str = "away", timeout: float | None = None) -> Away:
    """Give the current turn up for the time of a block or of a function's calls, and take the next one after.

    The current turn is that of the innermost `with` block or decorator around; without one, nothing happens.
    The same turn object goes on, with the new fence, for the slices that it still had. What the body raises
    is raised once the turn is back. If it cannot be had again (`timeout`, in seconds of waiting), that is
    raised, and leaving the outer block does nothing. All members of a run must call it alike.
    """
    return Away(check_name("phase", phase), timeout)


class Away:
    """What `away()` returns: a context manager and a decorator, for plain and for coroutine functions."""

    def __init__(self, phase: str, timeout: float | None) -> None:
        self._phase, self._timeout = phase, timeout
        self._left: list[Turn | AsyncTurn | None] = []

    def __enter__(self) -> None:
        turn = current.get()
        if isinstance(turn, AsyncTurn):
            raise TurnError(
                f"{turn} belongs to an event loop, which a plain `away` would block.",
                advice="Use `async with slicelock.away()`, or a coroutine function.",
            )
        if turn is not None and not turn.over:
            turn.leave(self._phase)
        self._remember(turn)

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        turn = self._recall()
        if isinstance(turn, Turn):
            turn.come_back(self._timeout)

    async def __aenter__(self) -> None:
        turn = current.get()
        if turn is not None and not turn.over:
            # A plain turn around `asyncio.run` is as good; only its waiting must not block the loop.
            await (
                turn.leave(self._phase) if isinstance(turn, AsyncTurn) else _apart(turn.leave, self._phase)
            )
        self._remember(turn)

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        turn = self._recall()
        if isinstance(turn, AsyncTurn):
            await turn.come_back(self._timeout)
        elif turn is not None:
            await _apart(turn.come_back, self._timeout)

    def __call__(self, func: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: the turn is given up for the time of each call."""
        refuse_generator(func, "time away")
        if inspect.iscoroutinefunction(func):
            return cast(Callable[P, T], self._around(cast(Callable[P, Awaitable[Any]], func)))

        @functools.wraps(func)
        def while_away(*args: P.args, **kwargs: P.kwargs) -> T:
            with Away(self._phase, self._timeout):
                return func(*args, **kwargs)

        return while_away

    def _around(self, func: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @functools.wraps(func)
        async def while_away(*args: P.args, **kwargs: P.kwargs) -> T:
            async with Away(self._phase, self._timeout):
                return await func(*args, **kwargs)

        return while_away

    def _remember(self, turn: Turn | AsyncTurn | None) -> None:
        self._left.append(turn if turn is not None and turn.is_away else None)
        if self._left[-1] is not None:
            current.set(None)

    def _recall(self) -> Turn | AsyncTurn | None:
        turn = self._left.pop()
        if turn is not None:
            current.set(turn)
        return None if turn is None or turn.foreign else turn


async def _apart(work: Callable[[Any], None], argument: object) -> None:
    await asyncio.to_thread(work, argument)


def current_turn() -> Turn | AsyncTurn | None:
    """The turn of the innermost block or decorated function around; None without one, and while away."""
    return current.get()
