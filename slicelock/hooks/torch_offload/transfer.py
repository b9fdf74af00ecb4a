"""Moves the storages of one device out of it and back in, so that the bus never waits for the program."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

from slicelock.hooks.torch_offload.device import SMALL, Device
from slicelock.hooks.torch_offload.guard import Guard
from slicelock.hooks.torch_offload.layout import DROPPED, Place, chunked, copies, room_needed
from slicelock.hooks.torch_offload.pool import HostPool

AHEAD = 3
"""Chunks queued at a time in an exchange. More would delay the freeing, fewer would leave the bus idle."""

Queued = tuple[list[Place], Any]
"""A chunk whose copies are queued, and the mark behind them."""


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
        chunks = chunked(places, self._step(leaving))
        try:
            with self.device.entered():
                if leaving:
                    self._leave_bit_by_bit(chunks, check, leaving)
                else:
                    queued = list(self._copies_out(chunks))
                    check()
                    for chunk, mark in queued:
                        self.device.wait(mark)
                        self._release(chunk)
                self.device.give_back()
        except BaseException:
            with suppress(Exception):  # the first failure is the one to tell
                self.device.finish()
            raise

    def come(self, places: Sequence[Place], coming: Coming | None = None) -> None:
        """Allocate everything again and copy it in. When anything fails, all of it is away again.

        Memory from the driver takes ten times as long while copies are under way (1 ms instead of 0.1 ms). So
        the small ones come first and at once, and the others in chunks of one allocation each.
        """
        begun: list[Place] = []
        try:
            with self.device.entered():
                for chunk in self._arrivals(places, coming):
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

    def _arrivals(self, places: Sequence[Place], coming: Coming | None) -> list[list[Place]]:
        if coming:  # every byte is admitted
            return chunked(sorted(places, key=_small_first), self._step(coming))
        ordered = sorted(places, key=lambda place: place.offset)
        small = [place for place in ordered if place.nbytes <= SMALL]
        large = chunked((place for place in ordered if place.nbytes > SMALL), self.chunk)
        return [small, *large] if small else large

    def _step(self, exchange: Leaving | Coming | None) -> int:
        """In an exchange every step has its price in both processes, so that it is twice as long."""
        return self.chunk * 2 if exchange else self.chunk

    def _leave_bit_by_bit(
        self, chunks: Sequence[list[Place]], check: Callable[[], None], leaving: Leaving
    ) -> None:
        """One thread queues copies, another gives back what has been copied. The driver frees memory only
        when all copies queued so far are through: with one thread the bus would be idle meanwhile.
        """
        queued: SimpleQueue[Queued | None] = SimpleQueue()
        failures: list[BaseException] = []

        def release() -> None:
            try:
                with self.device.entered():
                    check()
                    for chunk in self._done_together(queued):
                        self._release(chunk)
                        leaving.freed(self.device.give_back())
            except BaseException as failure:  # noqa: BLE001 - raised by the other thread
                failures.append(failure)

        thread = Thread(target=release, name="slicelock-releasing", daemon=True)
        try:
            thread.start()
            for one in self._copies_out(chunks, AHEAD):
                queued.put(one)
                if failures:
                    break
        finally:
            queued.put(None)
            await_end_of([thread])
        if failures:
            raise failures[0]

    def _done_together(self, queued: SimpleQueue[Queued | None]) -> Iterator[list[Place]]:
        """The places of the next chunk once it is copied, with those of all that are copied by then: freeing
        them takes one wait for the bus, not one for each.
        """
        one = queued.get()
        while one:
            places, mark = one
            self.device.wait(mark)
            while (one := queued.get()) and self.device.is_past(one[1]):
                places = [*places, *one[0]]
            yield places

    def _copies_out(self, chunks: Iterable[list[Place]], ahead: int | None = None) -> Iterator[Queued]:
        """Queue the copies of each chunk, at most `ahead` chunks before the bus has done them."""
        marks: deque[Any] = deque()
        for chunk in chunks:
            if ahead and len(marks) == ahead:
                self.device.wait(marks.popleft())
            for copy in copies(chunk, self.pool.block):
                self.device.copy_out(self.pool.address + copy.offset, copy.address, copy.nbytes)
            marks.append(self.device.mark())
            yield chunk, marks[-1]

    def _release(self, places: Iterable[Place]) -> None:
        for place in places:
            place.away = True  # first: an interrupt may come after any step, and what is away is brought back
            if place.storage.nbytes():
                place.storage.resize_(0)
            self.guard.forbid(place.storage)

    def _restore(self, places: Sequence[Place]) -> None:
        for stream, together in groupby(places, lambda place: place.stream):
            with self.device.allocating_for(stream):
                self._restore_on_stream(list(together))

    def _restore_on_stream(self, places: Sequence[Place]) -> None:
        if large := sum(place.room for place in places if place.nbytes > SMALL):
            self.device.make_room(large)
        for place in places:
            self.guard.allow(place.storage)
            place.storage.resize_(place.nbytes)
            place.address, place.away = place.storage.data_ptr(), False


def _small_first(place: Place) -> tuple[bool, int]:
    return place.nbytes > SMALL, place.offset


def await_end_of(threads: Iterable[Thread]) -> None:
    """Wait until all that were started have ended, also when interrupted; the interrupt is raised then.

    Nobody may undo their work beside them: what they release after that would be brought back by no one.
    """
    interrupt: BaseException | None = None
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as failure:  # noqa: BLE001 - raised below
                interrupt = failure
    if interrupt:
        raise interrupt


def moved_bytes(places: Iterable[Place]) -> int:
    """Bytes that are copied; what was dropped does not count."""
    return sum(place.nbytes for place in places if place.offset != DROPPED)
