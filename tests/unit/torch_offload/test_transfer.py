"""What is moved by threads and may be interrupted at any step: nothing is lost. Without torch."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator

import pytest

from slicelock.hooks.torch_offload.fleet import Fleet
from slicelock.hooks.torch_offload.layout import Place
from slicelock.hooks.torch_offload.transfer import Mover, await_end_of
from tests.support.torch_machine import CHUNK, HostMachine


class Storage:
    """Has memory that comes and goes; `after` is called when it has gone."""

    def __init__(self, byte: bytes) -> None:
        self._cdata = id(self)
        self.after: Callable[[], None] = lambda: None
        self._memory = ctypes.create_string_buffer(byte * CHUNK, CHUNK)

    def nbytes(self) -> int:
        return len(self._memory)

    def data_ptr(self) -> int:
        return ctypes.addressof(self._memory)

    def resize_(self, nbytes: int) -> None:
        self._memory = (ctypes.c_char * nbytes)()
        if not nbytes:
            self.after()

    @property
    def contents(self) -> bytes:
        return self._memory.raw


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    made = Fleet(HostMachine())
    yield made
    made.close()


@pytest.fixture
def mover(fleet: Fleet) -> Mover:
    return fleet.mover(0)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_behind_any_release_loses_nothing(mover: Mover) -> None:
    storages = [Storage(byte) for byte in (b"a", b"b", b"c")]
    places = [
        Place(f"{number}", one, one.data_ptr(), CHUNK, CHUNK, number * CHUNK)
        for number, one in enumerate(storages)
    ]
    mover.pool.ensure(3 * CHUNK)
    storages[1].after = interrupt
    with pytest.raises(KeyboardInterrupt):
        mover.leave(places, lambda: None)
    assert [one.nbytes() for one in storages] == [0, 0, CHUNK]
    mover.come([place for place in places if place.away])
    assert [one.contents for one in storages] == [b"a" * CHUNK, b"b" * CHUNK, b"c" * CHUNK]


def test_a_device_whose_thread_cannot_begin_waits_for_the_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, raised, ended = threading.Thread.start, threading.Event(), list[int]()

    def first_alone(thread: threading.Thread) -> None:
        if threading.active_count() > before:
            raise RuntimeError("can't start new thread")
        start(thread)

    def work(index: int, _mover: Mover, _places: list[Place]) -> None:
        raised.wait(0.2)
        ended.append(index)

    for index in range(3):
        fleet.mover(index)
    before = threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", first_alone)
    with pytest.raises(RuntimeError, match="new thread"):
        fleet.on_all({0: [], 1: [], 2: []}, work)
    seen = list(ended)
    raised.set()
    assert seen == [0]


def test_an_interrupt_does_not_keep_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    go, join = threading.Event(), threading.Thread.join
    thread = threading.Thread(target=go.wait, args=(10,))

    def interrupted(_thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "join", join)
        go.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        await_end_of([thread, threading.Thread(target=go.wait)])
    assert not thread.is_alive()
