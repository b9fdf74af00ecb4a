"""`turn()`: the same object as a context manager and as a decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from slicelock.client.turn import AsyncTurn, BaseTurn, Turn, current
from slicelock.errors import LeaseLost

P = ParamSpec("P")
T = TypeVar("T")


def refuse_generator(func: Callable[..., Any], what: str) -> None:
    """A generator's body runs after the call has returned, so nothing around the call covers it."""
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise TypeError(
            f"{getattr(func, '__qualname__', func)} is a generator: it would run after the {what} had ended. "
            "Use a `with` block inside it."
        )


def raise_loss(turn: BaseTurn, failure: BaseException | None) -> None:
    """Leaving the block of a lost turn raises its loss, or adds it to what the body raised already."""
    if (loss := turn.loss) is None or loss is failure:
        return
    if failure is None:
        raise loss
    failure.add_note(f"Besides: {loss}")


class TurnBlock:
    """What `Slice.turn()` returns. Each entry takes a turn of its own."""

    def __init__(
        self, acquire: Callable[[], Turn], acquire_async: Callable[[], Awaitable[AsyncTurn]]
    ) -> None:
        self._acquire, self._acquire_async = acquire, acquire_async
        self._entered: list[tuple[Turn, Turn | AsyncTurn | None]] = []

    def __enter__(self) -> Turn:
        turn = self._acquire()
        self._entered.append((turn, current.get()))
        current.set(turn)
        return turn

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        turn, outer = self._entered.pop()
        current.set(outer)
        if turn.over:
            return
        if turn.loss is None:
            with suppress(LeaseLost):  # the yield may learn of it; then it is raised as any other
                turn.yield_()
        raise_loss(turn, failure)

    def __call__(self, func: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function: each call takes a turn and yields it. A coroutine function waits as one."""
        refuse_generator(func, "turn")
        if inspect.iscoroutinefunction(func):
            block = AsyncTurnBlock(self._acquire_async)
            return cast(Callable[P, T], block(cast(Callable[P, Awaitable[Any]], func)))

        @functools.wraps(func)
        def with_turn(*args: P.args, **kwargs: P.kwargs) -> T:
            with TurnBlock(self._acquire, self._acquire_async):
                return func(*args, **kwargs)

        return with_turn


class AsyncTurnBlock:
    """What `AsyncSlice.turn()` returns. Each entry takes a turn of its own."""

    def __init__(self, acquire: Callable[[], Awaitable[AsyncTurn]]) -> None:
        self._acquire = acquire
        self._entered: list[tuple[AsyncTurn, Turn | AsyncTurn | None]] = []

    async def __aenter__(self) -> AsyncTurn:
        turn = await self._acquire()
        self._entered.append((turn, current.get()))
        current.set(turn)
        return turn

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        turn, outer = self._entered.pop()
        current.set(outer)
        if turn.over:
            return
        if turn.loss is None:
            with suppress(LeaseLost):
                await turn.yield_()
        raise_loss(turn, failure)

    def __call__(self, func: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Decorate a coroutine function: each call takes a turn and yields it."""
        refuse_generator(func, "turn")
        if not inspect.iscoroutinefunction(func):
            name = getattr(func, "__qualname__", func)
            raise TypeError(
                f"{name} is not a coroutine function, so it cannot await an AsyncSlice. Use Slice."
            )

        @functools.wraps(func)
        async def with_turn(*args: P.args, **kwargs: P.kwargs) -> T:
            async with AsyncTurnBlock(self._acquire):
                return await func(*args, **kwargs)

        return with_turn
