"""Moves the storages of one device out of it and back in, so that the bus never waits for the program."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from slicelock.hooks.torch_offload.device import SMALL, Device
from slicelock.hooks.torch_offload.guard import Guard
from slicelock.hooks.torch_offload.layout import DROPPED, Place, chunked, copies, room_needed
from slicelock.hooks.torch_offload.pool import HostPool

AHEAD = 2
"""Chunks queued ahead of the one that is being released in an exchange: freeing memory waits for all copies
that are queued, so that more would delay it and fewer would leave the bus idle.
"""


class Leaving(Protocol):
    """Is told what has been given back to the driver, chunk by chunk."""

    def freed(self, nbytes: int) -> None: ...


class Coming(Protocol):
    """Is asked before each chunk is allocated; raises when it must not be."""

    def admit(self, nbytes: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Mover:
    """One device with its pool."""

    device: Device
    pool: HostPool
    guard: Guard
    chunk: int

    def leave(
        self, places: Sequence[Place], check: Callable[[], None], leaving: Leaving | None = None
    ) -> None:
        """Copy everything out, and release each chunk as soon as it is in the pool.

        `check` runs while the first copies are under way and may refuse. When anything fails, what has been
        released so far is marked `away`, and nothing more is under way.
        """
        chunks = iter(chunked(places, self.chunk))
        queued: deque[tuple[list[Place], Any]] = deque()
        try:
            with self.device.entered():
                self._queue_out(islice(chunks, AHEAD if leaving else None), queued)
                check()
                while queued:
                    chunk, mark = queued.popleft()
                    self.device.wait(mark)
                    self._queue_out(islice(chunks, 1), queued)
                    self._release(chunk)
                    if leaving:
                        leaving.freed(self.device.give_back())
                self.device.give_back()
        except BaseException:
            with suppress(Exception):  # the first failure is the one to tell
                self.device.finish()
            raise

    def come(self, places: Sequence[Place], coming: Coming | None = None) -> None:
        """Allocate everything again and copy it in. When anything fails, all of it is away again.

        Memory from the driver takes ten times as long while copies are under way (1 ms instead of 0.1 ms). So
        the small ones come first, and the others in chunks, of one allocation each.
        """
        begun: list[Place] = []
        try:
            with self.device.entered():
                for chunk in chunked(sorted(places, key=_small_first), self.chunk):
                    if coming:
                        coming.admit(room_needed(chunk))
                    begun += chunk
                    self._restore(chunk)
                    for copy in copies(chunk, self.pool.block):
                        self.device.copy_in(copy.address, self.pool.address + copy.offset, copy.nbytes)
                self.device.finish()
        except BaseException:
            self.withdraw(begun)
            raise

    def withdraw(self, places: Iterable[Place]) -> None:
        """Have these off the device again; the pool still has what was in them."""
        with suppress(Exception), self.device.entered():
            self.device.finish()
        self._release(places)
        self.device.give_back()

    def _queue_out(self, chunks: Iterable[list[Place]], queued: deque[tuple[list[Place], Any]]) -> None:
        for chunk in chunks:
            for copy in copies(chunk, self.pool.block):
                self.device.copy_out(self.pool.address + copy.offset, copy.address, copy.nbytes)
            queued.append((chunk, self.device.mark()))

    def _release(self, places: Iterable[Place]) -> None:
        for place in places:
            if place.storage.nbytes():
                place.storage.resize_(0)
            place.away = True
            self.guard.forbid(place.storage)

    def _restore(self, places: Sequence[Place]) -> None:
        self._make_room(places)
        for place in places:
            self.guard.allow(place.storage)
            with self.device.allocating_for(place.stream):
                place.storage.resize_(place.nbytes)
            place.address, place.away = place.storage.data_ptr(), False

    def _make_room(self, places: Iterable[Place]) -> None:
        needed: dict[int, int] = defaultdict(int)
        for place in places:
            if place.nbytes > SMALL:
                needed[place.stream] += place.room
        for stream, nbytes in needed.items():
            with self.device.allocating_for(stream):
                self.device.make_room(nbytes)


def _small_first(place: Place) -> tuple[bool, int]:
    return place.nbytes > SMALL, place.offset


def moved_bytes(places: Iterable[Place]) -> int:
    """Bytes that are copied; what was dropped does not count."""
    return sum(place.nbytes for place in places if place.offset != DROPPED)
