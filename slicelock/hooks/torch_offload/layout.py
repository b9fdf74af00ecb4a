"""Where each storage lies on its device and in the host pool, and which copies bring it over. No I/O.

Storages are laid out in the pool in the order of their device addresses, each with the room that torch's
allocator gave it, which is a multiple of 512 bytes on a GPU. Neighbours on the device are then neighbours in
the pool, padding included, and a run of them is one copy. That is how thousands of small tensors move at the
speed of the bus, and no byte outside of the storages' own blocks is ever read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

DROPPED = -1
"""The offset of what is not copied: it is loaded again from elsewhere."""
SEGMENT = 2 << 20
"""What torch's allocator gets from the driver begins at a multiple of this; a copy over two such parts fails,
even if one begins where the other ends.
"""


@dataclass(slots=True, eq=False)
class Place:
    """One storage: its device address, its bytes, the bytes that the allocator gave it (`room`), its offset
    in the pool; `away` while it is not on the device.
    """

    name: str
    storage: Any
    address: int
    nbytes: int
    room: int
    offset: int = DROPPED
    away: bool = False
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """One transfer between a device address and an offset in the pool."""

    address: int
    offset: int
    nbytes: int


def rounded(nbytes: int, granularity: int) -> int:
    """`nbytes` rounded up to a multiple."""
    return -(-nbytes // granularity) * granularity


def room_needed(places: Iterable[Place]) -> int:
    """Bytes of pool for all of them."""
    return sum(place.room for place in places)


def arrange(places: Sequence[Place], room: int) -> tuple[list[Place], list[Place]]:
    """Give offsets to as many places as `room` bytes hold, in the order of their addresses; the others are
    second.
    """
    kept: list[Place] = []
    left: list[Place] = []
    used = 0
    for place in sorted(places, key=lambda one: one.address):
        if used + place.room <= room:
            place.offset = used
            used += place.room
            kept.append(place)
        else:
            left.append(place)
    return kept, left


def chunked(places: Iterable[Place], nbytes: int) -> list[list[Place]]:
    """Cut a sequence of places into chunks of about `nbytes`, at least one place in each."""
    chunks: list[list[Place]] = []
    size = nbytes
    for place in places:
        if size >= nbytes:
            chunks.append([])
            size = 0
        chunks[-1].append(place)
        size += place.room
    return chunks


def copies(places: Iterable[Place], edge: int) -> Iterator[Copy]:
    """The transfers for these places. Neighbours are one; none reaches over a multiple of `edge` in the pool,
    since memory is pinned in blocks and a copy must stay within one.
    """
    for run in _runs(places):
        yield from _cut(run, edge)


def _runs(places: Iterable[Place]) -> Iterator[Copy]:
    first: Place | None = None
    last: Place | None = None
    for place in places:
        if place.offset == DROPPED:
            continue
        if first is not None and last is not None:
            if _neighbours(last, place):
                last = place
                continue
            yield _run(first, last)
        first = last = place
    if first is not None and last is not None:
        yield _run(first, last)


def _neighbours(one: Place, other: Place) -> bool:
    if other.address % SEGMENT == 0:
        return False
    return one.address + one.room == other.address and one.offset + one.room == other.offset


def _run(first: Place, last: Place) -> Copy:
    return Copy(first.address, first.offset, last.offset + last.nbytes - first.offset)


def _cut(run: Copy, edge: int) -> Iterator[Copy]:
    begin, end = run.offset, run.offset + run.nbytes
    while begin < end:
        stop = min(end, (begin // edge + 1) * edge)
        yield Copy(run.address + begin - run.offset, begin, stop - begin)
        begin = stop
