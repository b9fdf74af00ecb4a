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


def waits_as_coroutine(func: Callable[..., Any]) -> bool:
    """Whether its call makes a coroutine; also that of an object, which has it in `__call__`."""
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(type(func).__call__)


def refuse_generator(func: Callable[..., Any], what: str) -> None:
    """A generator's body runs after the call has returned, so nothing around the call covers it."""
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(kind(func) or kind(type(func).__call__) for kind in kinds):
        raise TypeError(
            f"{_named(func)} is a generator: it would run after the {what} had ended. "
            "Use a `with` block inside it."
        )


def refuse_coroutine(result: T, func: Callable[..., Any], what: str) -> T:
    """What a plain function returned, unless it is a coroutine: that has not begun either."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            f"{_named(func)} returned a coroutine, which would run after the {what} had ended. "
            "Decorate what makes it instead, or make this an `async def`."
        )
    return result


def _named(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__qualname__", func))


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
        if waits_as_coroutine(func):
            block = AsyncTurnBlock(self._acquire_async)
            return cast(Callable[P, T], block(cast(Callable[P, Awaitable[Any]], func)))

        @functools.wraps(func)
        def with_turn(*args: P.args, **kwargs: P.kwargs) -> T:
            with TurnBlock(self._acquire, self._acquire_async):
                return refuse_coroutine(func(*args, **kwargs), func, "turn")

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
        if not waits_as_coroutine(func):
            raise TypeError(
                f"{_named(func)} is not a coroutine function, so it cannot await an AsyncSlice. Use Slice."
            )

        @functools.wraps(func)
        async def with_turn(*args: P.args, **kwargs: P.kwargs) -> T:
            async with AsyncTurnBlock(self._acquire):
                return await func(*args, **kwargs)

        return with_turn
