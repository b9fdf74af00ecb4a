"""`away` of several at once, inside one turn."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import slicelock
from slicelock import AsyncSlice, Slice, Turn, TurnError, errors
from slicelock.client.turn import AsyncTurn
from slicelock.store import Store
from tests.support.sides import ThreadSide
from tests.support.wait import wait_until_async


class Together:
    """Coroutines that are away at the same time; each ends when the test says so."""

    def __init__(self, count: int, timeout: float | None = None) -> None:
        self.inside, self.ended = 0, [asyncio.Event() for _ in range(count)]
        self.all_inside = asyncio.Event()

        @slicelock.away(timeout=timeout)
        async def grade(number: int) -> None:
            self.inside += 1
            if self.inside == count:
                self.all_inside.set()
            await self.ended[number].wait()

        self.tasks = [asyncio.create_task(grade(number)) for number in range(count)]

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.ended[number].set()


async def inside(
    mine: Slice, looker: ThreadSide, kind: str, body: Callable[[Turn | AsyncTurn], Awaitable[None]]
) -> None:
    """Run the body inside a turn of either kind, in an event loop."""
    if kind == "plain":
        with mine.turn() as turn:
            await body(turn)
    else:
        async with AsyncSlice("a", settings=looker.settings("r1")).turn() as turn:
            await body(turn)
    await asyncio.to_thread(looker.close)


async def on_its_way_back(looker: ThreadSide) -> tuple[Together, Turn]:
    """One that waits for its turn, and the turn that another run has meanwhile."""
    group = Together(1)
    await group.all_inside.wait()
    other = await asyncio.to_thread(looker.acquire, "a", run="r2")
    group.end(0)
    await wait_until_async(lambda: len(looker.requests()) == 2)
    return group, other


@pytest.fixture(params=["plain", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Whose turn it is: a thread's, or an event loop's."""
    return request.param


async def test_the_last_to_end_takes_the_turn_back(mine: Slice, looker: ThreadSide, kind: str) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        before, group = turn.fence, Together(12)
        await group.all_inside.wait()
        assert await asyncio.to_thread(looker.holder) == ""
        group.end(*range(11))
        done, _ = await asyncio.wait(group.tasks, timeout=0.1)
        assert not done  # what follows them would run without the accelerator
        assert await asyncio.to_thread(looker.requests) == []
        group.end(11)
        await asyncio.gather(*group.tasks)
        turn.check()
        assert turn.fence > before
        assert await asyncio.to_thread(looker.holder) == "r1"

    await inside(mine, looker, kind, body)


async def test_again_and_again(mine: Slice, looker: ThreadSide, kind: str) -> None:
    @slicelock.away()
    async def grade(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def body(turn: Turn | AsyncTurn) -> None:
        room = asyncio.Semaphore(3)

        async def one(number: int) -> int:
            async with room:
                return await grade(number)

        assert await asyncio.gather(*map(one, range(10))) == list(range(10))
        turn.check()

    await inside(mine, looker, kind, body)


async def test_one_that_is_cancelled_leaves_the_turn_to_the_others(
    mine: Slice, looker: ThreadSide, kind: str
) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        group = Together(2)
        await group.all_inside.wait()
        group.tasks[0].cancel()
        group.end(1)
        outcomes = await asyncio.gather(*group.tasks, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert outcomes[1] is None
        turn.check()

    await inside(mine, looker, kind, body)


async def test_one_that_is_cancelled_on_its_way_out_takes_the_turn_back(
    mine: Slice, looker: ThreadSide, kind: str
) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        task = Together(1).tasks[0]
        await asyncio.sleep(0)  # it has begun to leave
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        turn.check()
        assert await asyncio.to_thread(looker.holder) == "r1"

    await inside(mine, looker, kind, body)


async def test_one_that_is_cancelled_on_its_way_back_waits_no_more(
    mine: Slice, looker: ThreadSide, kind: str
) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        group, other = await on_its_way_back(looker)
        group.tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await group.tasks[0]
        assert [request.run for request in await asyncio.to_thread(looker.requests)] == ["r2"]
        assert turn.over
        await asyncio.to_thread(looker.give, other)

    await inside(mine, looker, kind, body)


async def test_one_that_is_cancelled_before_it_has_left_goes_on_inside_the_turn_of_the_others(
    mine: Slice, looker: ThreadSide, kind: str
) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        group, other = await on_its_way_back(looker)
        late = Together(1).tasks[0]  # waits for the turn, to give it up at once
        await asyncio.sleep(0)
        late.cancel()
        done, _ = await asyncio.wait([late], timeout=0.1)
        assert not done
        await asyncio.to_thread(looker.give, other)
        with pytest.raises(asyncio.CancelledError):
            await late
        turn.check()
        await group.tasks[0]

    await inside(mine, looker, kind, body)


def test_an_interrupt_on_the_way_out_is_raised_inside_the_turn(
    mine: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with mine.turn() as turn:
        monkeypatch.setattr(Store, "drive", interrupted)
        with pytest.raises(KeyboardInterrupt), slicelock.away():
            raise AssertionError("away")
        turn.check()


async def test_a_turn_that_cannot_come_back_is_told_to_all(
    mine: Slice, looker: ThreadSide, kind: str
) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        group = Together(3, timeout=0.2)
        await group.all_inside.wait()
        other = await asyncio.to_thread(looker.acquire, "a", run="r2")
        group.end(0, 1, 2)
        for outcome in await asyncio.gather(*group.tasks, return_exceptions=True):
            assert isinstance(outcome, errors.AcquireTimeout)
        assert turn.over
        await asyncio.to_thread(looker.give, other)

    await inside(mine, looker, kind, body)


@pytest.mark.parametrize("known", [False, True])
async def test_a_lost_turn_is_told_to_all(mine: Slice, looker: ThreadSide, kind: str, *, known: bool) -> None:
    async def body(turn: Turn | AsyncTurn) -> None:
        await asyncio.to_thread(looker.revoke, turn)
        if known:
            await wait_until_async(lambda: turn.loss)
        group = Together(2)
        for outcome in await asyncio.gather(*group.tasks, return_exceptions=True):
            assert isinstance(outcome, errors.Revoked)
        assert not group.inside

    await inside(mine, looker, kind, body)


def test_threads_with_the_same_turn(mine: Slice, looker: ThreadSide) -> None:
    meeting = threading.Barrier(4)

    @slicelock.away()
    def grade() -> str:
        meeting.wait(10)
        holder = looker.holder()
        meeting.wait(10)
        return holder

    def graded() -> tuple[str, str]:
        return grade(), looker.holder()

    with mine.turn() as turn, ThreadPoolExecutor(4) as threads:
        tasks = [threads.submit(contextvars.copy_context().run, graded) for _ in range(4)]
        assert [task.result(20) for task in tasks] == [("", "r1")] * 4
        turn.check()


async def test_plain_blocks_in_one_event_loop_do_not_wait_for_each_other(
    mine: Slice, looker: ThreadSide
) -> None:
    both = asyncio.Event()

    async def grade(first: bool) -> None:
        with slicelock.away():
            if first:
                await both.wait()
            both.set()

    with mine.turn() as turn:
        outcomes = await asyncio.gather(grade(True), grade(False), return_exceptions=True)
        assert outcomes[0] is None
        assert isinstance(outcomes[1], TurnError)
        assert "async with" in str(outcomes[1])
        turn.check()


@pytest.mark.parametrize("timeout", [-1.0, math.nan])
def test_a_timeout_that_cannot_be(mine: Slice, timeout: float) -> None:
    says = f"A timeout of {timeout:g} s is not possible"
    with pytest.raises(errors.ConfigurationError, match=says):
        slicelock.away(timeout=timeout)
    turn = mine.acquire()
    turn.leave()
    with pytest.raises(errors.ConfigurationError, match=says):
        turn.come_back(timeout)
    turn.come_back()  # it was still away
    turn.yield_()
