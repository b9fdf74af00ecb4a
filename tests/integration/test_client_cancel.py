"""An acquire that is cancelled at any moment leaves neither a holder nor a queue entry."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from types import FrameType

import pytest

from slicelock import AsyncSlice, Slice, errors
from tests.support.proxy import Fault, Proxy, script_call
from tests.support.sides import LoopSide, Side, ThreadSide
from tests.support.wait import wait_until, wait_until_async

TIMES = 1000
LONGEST_S = 0.003


class Alarm:
    """Raises KeyboardInterrupt in the main thread after a while, wherever it is."""

    def __init__(self) -> None:
        self._armed = False

    def __enter__(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *failure: object) -> None:
        signal.signal(signal.SIGALRM, self._before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt

    def during(self, body: Callable[[], None], after_s: float) -> bool:
        """Run `body`; whether it was interrupted."""
        try:
            try:
                self._armed = True
                signal.setitimer(signal.ITIMER_REAL, after_s)
                body()
            finally:
                self._armed = False
        except KeyboardInterrupt:
            return True
        return False


def rest(looker: Side) -> None:
    """Nothing is held and nothing waits, at once or as soon as the companion has told it."""
    wait_until(lambda: looker.requests() == [], timeout=5.0, what="nothing held, nothing waiting")


class TestScenario14:
    """`test_scenario_14_cancel_acquire`, for KeyboardInterrupt and for cancelled tasks."""

    # An interrupt inside redis-py's connect leaves its half-open socket to the garbage collector.
    @pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
    def test_scenario_14_cancel_acquire_by_keyboard_interrupt(self, looker: ThreadSide) -> None:
        rnd = random.Random(14)
        mine, other = (Slice("a", settings=looker.settings(run)) for run in ("r1", "r2"))
        interrupted = 0

        def take() -> None:
            mine.acquire().yield_()

        take()
        with Alarm() as alarm:
            for turn in range(TIMES):
                held = other.acquire() if turn % 2 else None
                interrupted += alarm.during(take, rnd.uniform(1e-5, LONGEST_S))
                if held:
                    held.yield_()
                if turn % 50 == 0:
                    rest(looker)
        assert interrupted > TIMES / 2
        rest(looker)
        take()
        assert looker.party("r1").companion.alive

    async def test_scenario_14_cancel_acquire_by_task_cancellation(self, looker: ThreadSide) -> None:
        rnd = random.Random(14)
        mine, other = (AsyncSlice("a", settings=looker.settings(run)) for run in ("r1", "r2"))
        cancelled = 0

        async def take() -> None:
            await (await mine.acquire()).yield_()

        async def at_rest() -> None:
            await wait_until_async(lambda: asyncio.to_thread(lambda: looker.requests() == []), timeout=5.0)

        await take()
        for turn in range(TIMES):
            held = await other.acquire() if turn % 2 else None
            task = asyncio.create_task(take())
            await asyncio.sleep(rnd.uniform(0, LONGEST_S))
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1
            if held:
                await held.yield_()
            if turn % 50 == 0:
                await at_rest()
        assert cancelled > TIMES / 2
        await at_rest()
        await take()
        await asyncio.to_thread(looker.close)

    async def test_scenario_14_cancel_twice_in_a_row(self, looker: ThreadSide) -> None:
        """The second cancellation hits the clean-up call."""
        rnd = random.Random(15)
        mine, other = (AsyncSlice("a", settings=looker.settings(run)) for run in ("r1", "r2"))
        held = await other.acquire()
        for _ in range(200):
            task = asyncio.create_task(mine.acquire())
            await asyncio.sleep(rnd.uniform(0, LONGEST_S))
            task.cancel()
            await asyncio.sleep(rnd.uniform(0, 0.0005))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await held.yield_()
        await wait_until_async(lambda: asyncio.to_thread(lambda: looker.requests() == []), timeout=5.0)
        await (await mine.acquire()).yield_()
        await asyncio.to_thread(looker.close)


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_CALL, Fault.DELIVER_LATE])
async def test_a_cancel_whose_own_call_is_lost_is_delivered_by_the_companion(
    looker: ThreadSide, proxy: Proxy, fault: Fault
) -> None:
    held = await AsyncSlice("a", settings=looker.settings("r2")).acquire()
    looker.url = proxy.url
    task = asyncio.create_task(AsyncSlice("a", settings=looker.settings("r1")).acquire())
    await wait_until_async(lambda: asyncio.to_thread(lambda: looker.slice().queued == 1))
    proxy.fault(fault, script_call("cancel"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: asyncio.to_thread(lambda: looker.slice().queued == 0), timeout=5.0)
    await asyncio.to_thread(proxy.release)
    await held.yield_()
    await asyncio.to_thread(looker.close)


async def test_a_cancelled_yield_is_delivered_by_the_companion(looker: ThreadSide, proxy: Proxy) -> None:
    looker.url = proxy.url
    turn = await AsyncSlice("a", settings=looker.settings("r1")).acquire()
    proxy.fault(Fault.SWALLOW_REPLY, script_call("yield"))
    proxy.fault(Fault.LOSE_CALL, script_call("yield"))
    task = asyncio.create_task(turn.yield_())
    await wait_until_async(lambda: proxy.hits >= 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: asyncio.to_thread(lambda: looker.holder() == ""), timeout=5.0)
    await asyncio.to_thread(looker.close)


async def test_a_timeout_from_outside_leaves_nothing(looker: ThreadSide) -> None:
    held = await AsyncSlice("a", settings=looker.settings("r2")).acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await AsyncSlice("a", settings=looker.settings("r1")).acquire()
    assert (await asyncio.to_thread(looker.slice)).queued == 0
    await held.yield_()
    await asyncio.to_thread(looker.close)


def test_an_event_loop_that_ends_leaves_nothing(looker: ThreadSide) -> None:
    """`asyncio.run` cancels what is left, its clean-up calls too."""
    held = Slice("a", settings=looker.settings("r2")).acquire()
    tasks: list[asyncio.Task[object]] = []

    async def main() -> None:
        mine = AsyncSlice("a", settings=looker.settings("r1"))
        tasks.append(asyncio.create_task(mine.acquire()))
        await wait_until_async(lambda: asyncio.to_thread(lambda: looker.slice().queued == 1))

    asyncio.run(main())
    wait_until(lambda: looker.slice().queued == 0, timeout=5.0)
    held.yield_()


def test_a_loop_after_another_takes_turns_too(looker: ThreadSide) -> None:
    async def main() -> int:
        async with AsyncSlice("a", settings=looker.settings("r1")).turn() as turn:
            return turn.fence

    fences = [asyncio.run(main()) for _ in range(5)]
    assert fences == sorted(set(fences))


def test_an_abandoned_coroutine_leaves_nothing(looker: Side) -> None:
    loop = LoopSide(looker.url, looker.pool)
    try:
        held = loop.acquire("a", run="r2")

        async def abandon() -> None:
            acquiring = AsyncSlice("a", settings=loop.settings("r1")).acquire()
            with contextlib.suppress(StopIteration):
                for _ in range(3):
                    acquiring.send(None)
                    await asyncio.sleep(0.01)
            acquiring.close()

        with contextlib.suppress(RuntimeError, errors.SlicelockError):
            loop.submit(abandon()).result(5)
        loop.give(held)
        rest(looker)
    finally:
        loop.close()
