"""Where storages go in the pool, and the copies that bring them there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicelock.hooks.torch_offload.layout import (
    DROPPED,
    SEGMENT,
    Copy,
    Place,
    arrange,
    chunked,
    copies,
    room_needed,
    rounded,
)

ROOM = 512


def place(address: int, nbytes: int, offset: int = DROPPED) -> Place:
    return Place(f"at {address}", None, address, nbytes, rounded(nbytes, ROOM), offset)


def test_places_are_laid_out_by_address() -> None:
    high, low = place(10_240, 100), place(4096, 600)
    kept, left = arrange([high, low], room=10_000)
    assert (kept, left) == ([low, high], [])
    assert (low.offset, high.offset) == (0, 1024)


def test_what_does_not_fit_is_left_and_smaller_ones_still_fit() -> None:
    first, large, last = place(0, 512), place(4096, 4096), place(9000, 512)
    kept, left = arrange([first, large, last], room=1024)
    assert (kept, left) == ([first, last], [large])
    assert last.offset == 512


def test_neighbours_are_one_copy_without_the_last_ones_padding() -> None:
    run = [place(512, 100, 0), place(1024, 512, 512), place(1536, 5, 1024)]
    assert list(copies(run, edge=1 << 20)) == [Copy(512, 0, 1029)]


def test_neighbours_only_on_the_device_or_only_in_the_pool_are_two_copies() -> None:
    assert len(list(copies([place(512, 512, 0), place(1024, 512, 2048)], edge=1 << 20))) == 2
    assert len(list(copies([place(512, 512, 0), place(4096, 512, 512)], edge=1 << 20))) == 2


def test_no_copy_goes_over_the_border_of_two_segments() -> None:
    run = [place(SEGMENT - 512, 512, 0), place(SEGMENT, 512, 512)]
    assert list(copies(run, edge=1 << 20)) == [Copy(SEGMENT - 512, 0, 512), Copy(SEGMENT, 512, 512)]


def test_no_copy_goes_over_the_edge_of_a_block() -> None:
    assert list(copies([place(8192, 2500, 500)], edge=1000)) == [
        Copy(8192, 500, 500),
        Copy(8692, 1000, 1000),
        Copy(9692, 2000, 1000),
    ]


def test_what_is_dropped_is_not_copied() -> None:
    assert not list(copies([place(0, 100)], edge=1000))


@pytest.mark.parametrize(
    ("sizes", "expected"), [([1, 1, 1], [2, 1]), ([5000], [1]), ([5000, 1], [1, 1]), ([], [])]
)
def test_chunks(sizes: list[int], expected: list[int]) -> None:
    places = [place(0, size * ROOM) for size in sizes]
    assert [len(chunk) for chunk in chunked(places, 2 * ROOM)] == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3000)), max_size=40),
    st.integers(1, 20).map(lambda n: n * ROOM),
)
def test_every_byte_is_copied_once_and_no_other(blocks: list[tuple[int, int]], edge: int) -> None:
    """`blocks`: for each, how many units lie free before it, and its size."""
    address, places = SEGMENT, list[Place]()
    for gap, size in blocks:
        address += gap * ROOM
        places.append(place(address, size))
        address += rounded(size, ROOM)
    kept, left = arrange(places, room_needed(places))
    assert not left
    wanted = {(one.address + n, one.offset + n) for one in kept for n in range(one.nbytes)}
    padding = {(one.address + n, one.offset + n) for one in kept for n in range(one.nbytes, one.room)}
    done = [
        (one.address + n, one.offset + n)
        for chunk in chunked(kept, 4096)
        for one in copies(chunk, edge)
        for n in range(one.nbytes)
    ]
    assert len(done) == len(set(done))
    assert wanted <= set(done) <= wanted | padding
