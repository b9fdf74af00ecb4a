"""What a signal handler or a finaliser does with turns while its thread is in a call to Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slicelock import Slice, Turn
from slicelock.errors import StoreError
from slicelock.store.raw_link import RawLink
from tests.support.sides import ThreadSide
from tests.support.wait import wait_until


@pytest.fixture
def handled(looker: ThreadSide, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Take and yield a turn on b, in the middle of which something else is done, as a handler would do it."""

    def run(handler: Callable[[], Any]) -> None:
        due, receive = [handler], RawLink.receive

        def interrupted(link: RawLink, *patience: Any) -> Any:
            if due:
                due.pop()()
            return receive(link, *patience)

        turns = Slice("b", lane="second", settings=looker.settings("r1"))
        monkeypatch.setattr(RawLink, "receive", interrupted)
        with turns.turn():
            pass
        assert not due

    return run


def test_a_yield_is_left_to_the_companion(
    looker: ThreadSide, handled: Callable[[Callable[[], Any]], None]
) -> None:
    slow = Slice("a", settings=looker.settings("r1", lease=30.0, renew=5.0))
    turn = slow.acquire()
    handled(turn.yield_)
    wait_until(lambda: looker.requests() == [], timeout=3.0, what="free before the next heartbeat")
    assert turn.over
    slow.acquire(timeout=5).yield_()


def test_a_turn_is_not_waited_for(
    mine: Slice, looker: ThreadSide, handled: Callable[[Callable[[], Any]], None]
) -> None:
    mine.acquire().yield_()
    taken: list[Turn] = []

    def take() -> None:
        with pytest.raises(StoreError, match=r"in the middle of another.*set a flag"):
            taken.append(mine.acquire())

    handled(take)
    assert not taken
    wait_until(lambda: looker.requests() == [], timeout=5.0, what="nothing is left of it")
    mine.acquire(timeout=5).yield_()
