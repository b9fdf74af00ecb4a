"""Tasks that never die unheard, and that end when they are told to."""

import asyncio

import pytest
from slicelock_agent import supervision
from slicelock_agent.supervision import cancelled, supervised, unless


@pytest.mark.parametrize(
    "failure", [RuntimeError("one"), ValueError(), ExceptionGroup("many", [OSError("two")])]
)
async def test_whatever_a_task_raises_it_begins_anew(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.001)
    begun: list[int] = []
    done = asyncio.Event()

    async def work() -> None:
        begun.append(1)
        if len(begun) < 4:
            raise failure
        done.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervised("the work", work))
    await asyncio.wait_for(done.wait(), 5)
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert "the work failed" in caplog.text
    await cancelled([task])
    assert task.cancelled()


async def test_work_that_just_ends_begins_anew_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.001)
    begun, enough = [0], asyncio.Event()

    async def work() -> None:
        begun[0] += 1
        if begun[0] == 3:
            enough.set()

    task = asyncio.create_task(supervised("the work", work))
    await asyncio.wait_for(enough.wait(), 5)
    await cancelled([task])


async def test_a_cancellation_that_is_swallowed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "AGAIN_S", 0.01)
    swallowed: list[int] = []

    async def stubborn() -> None:
        while len(swallowed) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(cancelled([task]), 5)
    assert task.cancelled()


async def test_work_is_given_up_when_the_event_comes() -> None:
    stop, ended = asyncio.Event(), []

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)
        return "never"

    asyncio.get_running_loop().call_soon(stop.set)
    assert await unless(stop, work()) is None
    assert ended


async def test_work_that_ends_first_gives_its_result() -> None:
    async def work() -> str:
        return "done"

    assert await unless(asyncio.Event(), work()) == "done"


async def test_what_work_raises_is_raised() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await unless(asyncio.Event(), work())
