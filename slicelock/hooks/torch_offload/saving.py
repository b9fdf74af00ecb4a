"""Copies of a module's or an optimizer's state for saving, taken from the host pool where it is offloaded."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.layout import Place
from slicelock.hooks.torch_offload.things import flat_parameters, parts

Find = Callable[[Any], tuple[Place, int] | None]
"""The place of a storage that is away, and its host address."""


def refuse_gathering(module: Any) -> None:
    """ConfigurationError for FSDP1, whose own `state_dict()` gathers all ranks' parameters on the device."""
    if next(flat_parameters(module), None) is not None:
        raise ConfigurationError(
            f"{type(module).__name__} is sharded by FSDP1, whose state_dict() gathers it on the device.",
            advice="Call its own state_dict() inside a turn, or shard by fully_shard (FSDP2): then each "
            "rank's shards are copied.",
        )


class HostCopies:
    """Replaces tensors by copies in host memory. What shares a storage goes on sharing one."""

    def __init__(self, torch: Any, find: Find) -> None:
        self._torch, self._find = torch, find
        self._storages: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """The same nesting of dicts, lists and tuples with copies for tensors; of a DTensor, its local
        shard. ConfigurationError for tensors that are no plain memory; those without any (meta) stay.
        """
        if callable(getattr(value, "local_shards", None)):
            raise ConfigurationError(
                f"A {type(value).__name__} is no plain tensor, so it is not copied.",
                advice="Save its local_shards() inside a turn, or use DTensor.",
            )
        if isinstance(value, self._torch.Tensor):
            return self._tensor(getattr(value, "_local_tensor", value))
        if isinstance(value, dict):
            return _like(
                cast(dict[Any, Any], value),
                {key: self.of(one) for key, one in cast(dict[Any, Any], value).items()},
            )
        if isinstance(value, list | tuple):
            made = [self.of(one) for one in cast(list[Any], value)]
            return made if isinstance(value, list) else tuple(made)
        return value

    def _tensor(self, tensor: Any) -> Any:
        if parts(self._torch, tensor) is not None or tensor.is_quantized or tensor.is_nested:
            raise ConfigurationError(
                f"A {type(tensor).__name__} ({tensor.layout}) is made of other tensors, so it is not copied.",
                advice="Save it inside a turn.",
            )
        if tensor.is_meta:
            return tensor
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = self._storage(storage)
        made = self._torch.empty(0, dtype=tensor.dtype).set_(
            self._storages[storage._cdata], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        made = made.conj() if tensor.is_conj() else made  # both are bits of the tensor, not of its memory
        return self._torch._neg_view(made) if tensor.is_neg() else made

    def _storage(self, storage: Any) -> Any:
        found = self._find(storage)
        if found is None:
            return storage.clone() if storage.device.type == "cpu" else storage.cpu()
        place, address = found
        window = (ctypes.c_char * place.nbytes).from_address(address)
        return self._torch.frombuffer(window, dtype=self._torch.uint8).clone().untyped_storage()


def _like(original: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """A state dict keeps its kind, and the versions that torch notes in its `_metadata`."""
    made = OrderedDict(items) if isinstance(original, OrderedDict) else items
    if hasattr(original, "_metadata"):
        cast(Any, made)._metadata = cast(Any, original)._metadata
    return made
