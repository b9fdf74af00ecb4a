"""What there is to move: the storages of the things that a job named, by device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.device import Machine
from slicelock.hooks.torch_offload.layout import Place, rounded
from slicelock.hooks.torch_offload.things import Walk, storages

Load = Callable[[Any], object]
ByDevice = dict[int, list[Place]]


@dataclass(frozen=True, slots=True)
class Found:
    """What is copied, what is dropped, and the modules and optimizers that were found."""

    kept: ByDevice = field(default_factory=dict[int, list[Place]])
    dropped: ByDevice = field(default_factory=dict[int, list[Place]])
    modules: tuple[Any, ...] = ()
    optimizers: tuple[Any, ...] = ()

    def all(self) -> list[Place]:
        """Every place."""
        return [place for group in (self.kept, self.dropped) for places in group.values() for place in places]


class Inventory:
    """The things, and the pairs of what is discarded and who loads it again."""

    def __init__(
        self, torch: Any, machine: Machine, things: Sequence[Any], discard: Iterable[tuple[Any, Load]]
    ) -> None:
        self.things, self.discard = things, _pairs(discard)
        self._torch, self._machine = torch, machine

    def look(self, *, call: bool) -> Found:
        """What there is now; `call`: ask callables too. What is both kept and discarded is kept."""
        walk = Walk(self._torch, call=call)
        kept = self._places(self.things, walk)
        known = {place.storage._cdata for places in kept.values() for place in places}
        dropped = self._places([thing for thing, _ in self.discard], walk)
        left = {index: places for index, found in dropped.items() if (places := _without(found, known))}
        return Found(kept, left, tuple(walk.modules.values()), tuple(walk.optimizers.values()))

    def modules(self) -> list[Any]:
        """The modules among the things, in containers too."""
        walk = Walk(self._torch, call=False)
        for thing in self.things:
            deque(walk.of(thing), maxlen=0)
        return list(walk.modules.values())

    def with_any(self, modules: Iterable[Any], wanted: Set[int]) -> list[Any]:
        """Those that have a tensor in one of these storages. Not every tensor elsewhere has a storage."""
        walk, index_of = Walk(self._torch, call=False), self._machine.index_of
        found = ((module, storages(walk.of(module), index_of)) for module in modules)
        return [module for module, own in found if any(one._cdata in wanted for _, _, one in own)]

    def _places(self, things: Iterable[Any], walk: Walk) -> ByDevice:
        tensors = (named for thing in things for named in walk.of(thing))
        found: ByDevice = {}
        for name, index, storage in storages(tensors, self._machine.index_of):
            nbytes = storage.nbytes()
            place = Place(
                name, storage, _address(name, storage), nbytes, rounded(nbytes, self._machine.granularity)
            )
            found.setdefault(index, []).append(place)
        return found


def _address(name: str, storage: Any) -> int:
    """ConfigurationError for a storage without memory: that of a tensor which stands for others and does not
    say which (`__tensor_flatten__`), or for none."""
    try:
        address = int(storage.data_ptr())
    except RuntimeError:
        address = 0
    if not address:
        raise ConfigurationError(
            f"{name} has no memory of its own: it is made of other tensors and does not tell of which.",
            advice="Give TorchOffload those that it is made of, or register a hook of your own.",
        )
    return address


def _without(places: list[Place], known: set[int]) -> list[Place]:
    return [place for place in places if place.storage._cdata not in known]


def _pairs(discard: Iterable[tuple[Any, Load]]) -> list[tuple[Any, Load]]:
    pairs: list[Any] = list(discard)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(cast(Any, pair)) == 2 and callable(cast(Any, pair)[1])):
            raise ConfigurationError(
                "`discard` takes pairs of a thing and a callable that loads it again.",
                advice="For example TorchOffload(model, optimizer, discard=[(reference, load_reference)]).",
            )
    return pairs
