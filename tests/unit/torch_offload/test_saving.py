"""What is not copied for saving is refused by name. What is copied: see test_hook.py, which needs torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.saving import HostCopies, refuse_gathering


class Tensor:
    """As much of a tensor as is looked at."""

    layout = "strided"

    def __init__(self, **traits: Any) -> None:
        self.__dict__.update(traits)


class Parameter(Tensor):
    """Not made here."""


LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_bsr", "sparse_csc", "sparse_bsc", "strided")
TORCH = SimpleNamespace(
    Tensor=Tensor, nn=SimpleNamespace(Parameter=Parameter), **{name: name for name in LAYOUTS}
)


def copies() -> HostCopies:
    return HostCopies(TORCH, lambda storage: None)


class Module:
    """A module whose parts are these."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def named_modules(self) -> list[tuple[str, Any]]:
        return [("", self), *((str(number), part) for number, part in enumerate(self.parts))]


def test_what_fsdp1_would_gather_is_refused_with_the_way_out() -> None:
    refuse_gathering(Module(Module()))
    wrapped = SimpleNamespace(_handle=SimpleNamespace(flat_param=object()))
    with pytest.raises(
        ConfigurationError, match=r"Module is sharded by FSDP1.*inside a turn, or.*fully_shard"
    ):
        refuse_gathering(Module(wrapped))


@pytest.mark.parametrize("base", [object, Tensor])
def test_sharded_tensors_are_refused(base: type) -> None:
    sharded = type("ShardedTensor", (base,), {"local_shards": lambda self: []})()
    with pytest.raises(ConfigurationError, match=r"A ShardedTensor is no plain tensor.*local_shards\(\)"):
        copies().of({"embedding": [sharded]})


def test_tensors_made_of_tensors_are_refused() -> None:
    sparse = Tensor(layout="sparse_coo", _indices=lambda: None, _values=lambda: None)
    packed = type("Packed", (Tensor,), {"__tensor_flatten__": lambda self: ([], None)})()
    for made, name in (
        (sparse, r"Tensor \(sparse_coo\)"),
        (packed, "Packed"),
        (Tensor(_local_tensor=packed), "Packed"),
    ):
        with pytest.raises(ConfigurationError, match=rf"A {name}.*made of other tensors.*inside a turn"):
            copies().of({"weight": made})


def test_what_is_no_tensor_is_passed_on() -> None:
    other = object()
    assert copies().of({"step": 3, "kept": [other, (None, "text")]}) == {
        "step": 3,
        "kept": [other, (None, "text")],
    }
