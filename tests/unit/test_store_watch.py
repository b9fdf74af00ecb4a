"""The thread that watches the Sentinels begins once, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import threading

import pytest

from slicelock.errors import StoreUnavailable
from slicelock.settings import StoreSettings
from slicelock.store.aio import AsyncStore
from slicelock.store.watch import PrimaryWatch
from tests.support.shortage import no_threads
from tests.support.wait import wait_until

NOBODY = StoreSettings.load(redis_url="redis+sentinel://127.0.0.1:1,127.0.0.1:2/m")


class Slow(PrimaryWatch):
    """Whoever starts it meets the others on the way."""

    meeting = threading.Barrier(2)

    @property
    def alive(self) -> bool:
        seen = super().alive
        with contextlib.suppress(threading.BrokenBarrierError):
            self.meeting.wait(0.2)
        return seen


def watches() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "slicelock-watch"]


def test_two_that_start_it_at_once_start_one_thread() -> None:
    watch = Slow(NOBODY, lambda: None)
    starts = [threading.Thread(target=watch.start) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(watches()) == 1
    watch.close()
    assert not watches()
    watch.start()
    assert not watches(), "closed for good"


def test_a_thread_that_could_not_be_started_is_not_waited_for() -> None:
    watch = PrimaryWatch(NOBODY, lambda: None)
    with no_threads("slicelock-watch"), pytest.raises(StoreUnavailable, match="slicelock-watch cannot"):
        watch.start()
    watch.close()


async def test_without_a_thread_to_ask_the_sentinels_it_is_said_so() -> None:
    with no_threads("asyncio_"), pytest.raises(StoreUnavailable, match="cannot be asked") as caught:
        await AsyncStore(NOBODY).open()
    assert "raise the limit" in caught.value.advice


def test_what_it_is_woken_with_is_closed_by_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun = threading.Event(), threading.Event()

    def look(*_: object) -> None:
        begun.set()
        gate.wait()

    monkeypatch.setattr("slicelock.store.watch.STOP_S", 0.01)
    monkeypatch.setattr(PrimaryWatch, "_round", look)
    watch = PrimaryWatch(NOBODY, lambda: None)
    watch.start()
    begun.wait()
    watch.close()  # waits no longer than it must
    bell = watch._bell
    assert bell is not None
    assert bell.fileno() >= 0
    gate.set()
    wait_until(lambda: not watches())
    assert bell.fileno() == -1


def test_one_whose_thread_could_not_be_started_leaves_nothing_open() -> None:
    watch = PrimaryWatch(NOBODY, lambda: None)
    with no_threads("slicelock-watch"), pytest.raises(StoreUnavailable):
        watch.start()
    watch.close()
    assert watch._bell is not None
    assert watch._bell.fileno() == -1
