"""Turns that nobody has yielded: what the end of the process did, and what somebody dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import slicelock
from slicelock import AsyncSlice, Slice
from slicelock.errors import Holding, TurnError
from tests.support.scripts import connect
from tests.support.sides import Side, ThreadSide


def test_what_the_end_of_the_process_has_yielded_is_over(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Any] = []

    def end(turn: Any) -> None:
        slicelock.testing.close_all()
        assert side.holder() == ""
        assert turn.over
        assert "not held" in repr(turn)
        with pytest.raises(TurnError, match="it was yielded"):
            turn.check()
        kept.append(turn)

    side.block(end, "a")
    side.give(kept[0])
    assert "left to the companion" not in caplog.text


@pytest.mark.parametrize("flushed", [False, True])
def test_a_turn_that_was_dropped_is_in_nobodys_way(looker: ThreadSide, flushed: bool) -> None:
    if flushed:  # an answer that is an error keeps nothing of its callers
        with connect(looker.url) as admin:
            admin.script_flush()
    slow = Slice("a", settings=looker.settings("r1", lease=30.0, renew=5.0))
    fence = slow.acquire().fence
    with slow.turn(timeout=3) as turn:
        assert turn.fence > fence
        with pytest.raises(Holding):
            slow.acquire()
    assert looker.requests() == []


async def test_nor_is_one_of_an_event_loop(looker: ThreadSide) -> None:
    slow = AsyncSlice("a", settings=looker.settings("r1", lease=30.0, renew=5.0))
    fence = (await slow.acquire()).fence
    async with slow.turn(timeout=3) as turn:
        assert turn.fence > fence
        with pytest.raises(Holding):
            await slow.acquire()
    assert await asyncio.to_thread(looker.requests) == []
