"""Descriptors or threads that are used up: an error that says so, and nothing is left behind."""

from __future__ import annotations

import pytest

from slicelock import scripts
from slicelock.companion import close_all
from slicelock.errors import SlicelockError, StoreUnavailable
from tests.support.shortage import descriptors, descriptors_left, no_threads
from tests.support.sides import LoopSide, Side, ThreadSide
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

ENOUGH = 12


def can_begin(side: Side, left: int) -> bool:
    """Whether a process's first turn begins with so few descriptors left; if not, it is told why."""
    scripts.load.cache_clear()
    scripts._texts.cache_clear()  # pyright: ignore[reportPrivateUsage]
    close_all()
    begun = descriptors()
    try:
        with descriptors_left(left):
            turn = side.acquire("a", timeout=10)
    except SlicelockError as failure:
        assert "open files" in str(failure)
        assert "ulimit -n" in failure.advice
    else:
        side.give(turn)
        return True
    assert side.requests() == []
    close_all()
    assert wait_until(lambda: descriptors() <= begun, what="nothing of it is open")
    side.give(side.acquire("a"))
    return False


def test_a_first_turn_with_few_descriptors_left(side: Side) -> None:
    assert side.requests() == []  # its own connection is open
    enough = next(left for left in range(ENOUGH) if can_begin(side, left))
    assert enough > 1


def test_a_first_turn_without_a_thread_for_the_companion(side: Side) -> None:
    with no_threads("slicelock-companion"), pytest.raises(StoreUnavailable, match="thread") as caught:
        side.acquire("a")
    assert "raise the limit" in caught.value.advice
    assert side.requests() == []
    close_all()  # waits for no thread that never ran
    side.give(side.acquire("a"))


@pytest.mark.parametrize(
    ("kind", "begin"),
    [(ThreadSide, "slicelock-evictor"), (LoopSide, "slicelock-evictor"), (LoopSide, "asyncio_")],
)
def test_a_yield_without_a_thread_for_the_empty_turn(
    side: Side, begin: str, caplog: pytest.LogCaptureFixture
) -> None:
    turn = side.acquire("a", facts={"mode": "always-evict"})
    with no_threads(begin):
        side.give(turn)
    wait_until(lambda: side.requests() == [], what="the turn is over")
    assert "the empty turn on a was not had" in caplog.text
    assert "raise the limit" in caplog.text
