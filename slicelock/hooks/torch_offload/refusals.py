"""Storages that TorchOffload must not touch, found and named before anything changes, with the way out."""

from __future__ import annotations

import gc
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, cast
from weakref import WeakSet

from slicelock.errors import SnapshotFailed
from slicelock.hooks.torch_offload.layout import Place

NAMED = 3


def refuse_at_a_glance(places: Sequence[Place]) -> None:
    """The checks that cost nothing: SnapshotFailed for storages that are not this process's own to resize."""
    _refuse(
        [place for place in places if not place.storage.resizable()],
        "belong to another allocator or to another process (CUDA IPC, DLPack)",
        "Give TorchOffload copies of them, leave them out, or register a hook of your own.",
    )
    shared = _shared_storages()
    _refuse(
        [place for place in places if place.storage._cdata in shared],
        "are shared with another process through CUDA IPC",
        "Have the other process drop them before the yield, or leave them out.",
    )
    ordered = sorted(places, key=lambda place: place.address)
    _refuse(
        [after for before, after in pairwise(ordered) if before.address + before.nbytes > after.address],
        "overlap other storages at the same addresses",
        "Keep one of them; a second storage over the same memory is not seen by the first.",
    )


def _shared_storages() -> set[int]:
    """The storages that torch.multiprocessing has sent or received, and that are still there."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    if reductions is None:
        return set()
    return {ref.cdata for ref in list(reductions.shared_cache.values()) if not ref.expired()}


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of device memory that torch's allocator got from the driver."""

    address: int
    nbytes: int
    stream: int
    pool: tuple[int, int]
    in_use: int


class Segments:
    """All of them, by address."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = sorted(segments, key=lambda one: one.address)
        self._addresses = [one.address for one in self._segments]

    @classmethod
    def of(cls, torch: Any, device: int) -> Segments:
        """What the allocator says of one device."""
        return cls(_segment(one) for one in snapshot(torch) if one["device"] == device)

    def at(self, address: int) -> Segment | None:
        """The one that holds an address."""
        number = bisect_right(self._addresses, address) - 1
        segment = self._segments[number] if number >= 0 else None
        return segment if segment and address < segment.address + segment.nbytes else None

    @property
    def of_graphs(self) -> bool:
        """Whether a captured graph has memory of its own here."""
        return any(one.pool[0] and one.in_use for one in self._segments)


def snapshot(torch: Any) -> list[dict[str, Any]]:
    """The segments of torch's allocator, on all devices."""
    try:
        return torch.cuda.memory_snapshot(include_traces=False)
    except TypeError:  # before torch 2.12
        return torch.cuda.memory_snapshot()


def _segment(facts: dict[str, Any]) -> Segment:
    return Segment(
        facts["address"],
        facts["total_size"],
        facts["stream"],
        tuple(facts.get("segment_pool_id", (0, 0))),
        facts["active_size"],
    )


def refuse_by_allocator(places: Sequence[Place], segments: Segments) -> None:
    """Look every storage up in the allocator: SnapshotFailed for those that are not its plain memory. Notes
    the stream of each, so that it can be allocated again where it came from.
    """
    found = {id(place): segments.at(place.address) for place in places}
    _refuse(
        [place for place in places if found[id(place)] is None],
        "are not in the memory of torch's allocator (another allocator made them)",
        "Leave them out, or register a hook of your own for them.",
    )
    for place in places:
        segment = found[id(place)]
        place.stream = segment.stream if segment else 0
    _refuse(
        [place for place in places if (one := found[id(place)]) and one.pool != (0, 0)],
        "lie in a private memory pool (of CUDA graphs, torch_memory_saver or torch.cuda.MemPool)",
        "Use slicelock.hooks.MemorySaver for them.",
    )


@cache
def instances_of(kind: type) -> WeakSet[Any]:
    """Every living instance of a class: those that there are already, and from now on each as it is made.

    Looking through all objects takes tens of milliseconds in a job, too long for every switch; and nothing
    else that Python counts tells one instance more from one other reference to the class less.
    """
    found: WeakSet[Any] = WeakSet()
    construct = cast(Any, kind).__init__

    def constructed(self: Any, *arguments: Any, **options: Any) -> None:
        construct(self, *arguments, **options)
        found.add(self)

    cast(Any, kind).__init__ = constructed  # before the look: none is missed in between
    found.update(one for one in gc.get_objects() if issubclass(type(one), kind))
    return found


def refuse_graphs(captured: bool) -> None:
    """SnapshotFailed when this process has captured graphs: they go on using the addresses that they saw."""
    if captured:
        raise SnapshotFailed(
            "This process has captured CUDA graphs. They refer to tensors by address, and offloaded tensors "
            "come back at other addresses; nothing was offloaded.",
            advice="Use slicelock.hooks.MemorySaver, which keeps addresses. If no graph uses these tensors, "
            "say so with TorchOffload(..., graphs_elsewhere=True).",
        )


def _refuse(places: Sequence[Place], what: str, advice: str) -> None:
    if places:
        raise SnapshotFailed(f"{named(places)} {what}; nothing was offloaded.", advice=advice)


def named(places: Sequence[Place]) -> str:
    """The first few by name."""
    names = ", ".join(place.name for place in places[:NAMED])
    more = len(places) - NAMED
    return f"{names} and {more} more" if more > 0 else names
