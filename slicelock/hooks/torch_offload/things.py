"""Finds the tensors in what a job hands over: modules, optimizers, tensors, containers, callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.frameworks import refuse_managed_module, refuse_managed_optimizer

PLAIN = (str, bytes, int, float, complex, bool, type(None))
CONTAINERS = (Mapping, list, tuple, set, frozenset)

Named = tuple[str, Any]


class Walk:
    """Yields `(name, tensor)` for every plain tensor in a thing, its gradient after it; the same tensor may
    come again. Tensors that are made of tensors (DTensor, quantized and sparse ones) come as their parts,
    which are the local ones.

    `call`: whether callables among the things are called for what they return.
    """

    def __init__(self, torch: Any, *, call: bool = True) -> None:
        self._torch, self._call = torch, call
        self._seen: dict[int, Any] = {}  # containers, kept alive: another one may have a dead one's identity
        self.modules: dict[int, Any] = {}  # that were come across, by identity
        self.optimizers: dict[int, Any] = {}

    def of(self, thing: Any, name: str = "") -> Iterator[Named]:
        """The tensors of one thing. ConfigurationError for what can have none, and for what belongs to a
        framework that manages its memory itself.
        """
        name = name or type(thing).__name__
        walker = self._walker(thing)
        if walker is None:
            raise ConfigurationError(
                f"TorchOffload does not know how to find tensors in {name} (a {type(thing).__name__}).",
                advice="Give it modules, optimizers, tensors, containers of those, or callables for them.",
            )
        yield from walker(thing, name)

    def _walker(self, thing: Any) -> Callable[[Any, str], Iterator[Named]] | None:
        torch = self._torch
        if isinstance(thing, torch.Tensor):
            return self._tensor
        if isinstance(thing, torch.nn.Module):
            return self._module
        if is_optimizer(thing):
            return self._optimizer
        if isinstance(thing, CONTAINERS):
            return self._container
        if isinstance(thing, PLAIN):
            return _nothing
        return self._callable if callable(thing) else None

    def _tensor(self, tensor: Any, name: str) -> Iterator[Named]:
        if self._torch.nn.parameter.is_lazy(tensor):
            return  # a parameter that waits for its first input has no memory, and says so by an error
        yield from _plain_tensors(self._torch, tensor, name)
        if tensor.is_leaf and tensor.grad is not None:
            yield from _plain_tensors(self._torch, tensor.grad, f"{name}.grad")

    def _module(self, module: Any, name: str) -> Iterator[Named]:
        refuse_managed_module(module)
        self.modules[id(module)] = module
        for path, parameter in module.named_parameters(remove_duplicate=False):
            yield from self._tensor(parameter, f"{name}.{path}")
        for path, buffer in module.named_buffers(remove_duplicate=False):
            yield from self._tensor(buffer, f"{name}.{path}")
        for path, flat in flat_parameters(module):
            yield from self._tensor(flat, f"{name}.{path}")

    def _optimizer(self, optimizer: Any, name: str) -> Iterator[Named]:
        refuse_managed_optimizer(optimizer)
        self.optimizers[id(optimizer)] = optimizer
        yield from self._inside(optimizer.param_groups, f"{name}.param_groups")
        yield from self._inside(optimizer.state, f"{name}.state")

    def _container(self, container: Any, name: str) -> Iterator[Named]:
        if id(container) in self._seen:
            return
        self._seen[id(container)] = container
        for key, value in _items(container):
            yield from self.of(value, f"{name}[{key}]")

    def _inside(self, value: Any, name: str) -> Iterator[Named]:
        """Whatever an optimizer keeps; what is neither tensor nor container is its own business."""
        if isinstance(value, self._torch.Tensor):
            yield from self._tensor(value, name)
        elif isinstance(value, CONTAINERS):
            for key, one in _items(value):
                yield from self._inside(one, f"{name}[{key}]")

    def _callable(self, function: Any, name: str) -> Iterator[Named]:
        if self._call:
            yield from self.of(function(), f"{getattr(function, '__name__', name)}()")


def is_optimizer(thing: Any) -> bool:
    """Whether it has the two attributes of torch's optimizers, which wrappers of them keep."""
    return hasattr(thing, "param_groups") and hasattr(thing, "state")


def _nothing(_thing: Any, _name: str) -> Iterator[Named]:
    return iter(())


def _items(container: Any) -> list[tuple[object, Any]]:
    if isinstance(container, Mapping):
        pairs = cast(Mapping[object, Any], container).items()
        return [
            (key if isinstance(key, PLAIN) else number, value) for number, (key, value) in enumerate(pairs)
        ]
    return list(enumerate(cast(Iterable[Any], container)))


def _plain_tensors(torch: Any, tensor: Any, name: str) -> Iterator[Named]:
    inner = parts(torch, tensor)
    if inner is None:
        yield name, tensor
        return
    for path, part in inner:
        yield from _plain_tensors(torch, part, f"{name}.{path}")


def parts(torch: Any, tensor: Any) -> list[Named] | None:
    """What a tensor is made of; None if it has a storage of its own."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided:
        return None
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [(one, getattr(tensor, one)) for one in names]
    if tensor.layout == torch.sparse_coo:
        return [("indices", tensor._indices()), ("values", tensor._values())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [(one, getattr(tensor, one)()) for one in ("crow_indices", "col_indices", "values")]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [(one, getattr(tensor, one)()) for one in ("ccol_indices", "row_indices", "values")]
    return None


def flat_parameters(module: Any) -> Iterator[Named]:
    """FSDP1 keeps its shard in a flat parameter, of which the parameters may be views, or may be none."""
    for path, part in module.named_modules():
        flat = getattr(getattr(part, "_handle", None), "flat_param", None)
        if flat is not None:
            yield f"{path}.flat_param", flat
            saved = getattr(flat, "_saved_grad_shard", None)
            if saved is not None:
                yield f"{path}.flat_param.grad", saved


def storages(found: Iterator[Named], wanted: Callable[[Any], int | None]) -> Iterator[tuple[str, int, Any]]:
    """`(name, device, storage)` of every distinct storage with bytes, by the first tensor that showed it."""
    seen: set[int] = set()
    for name, tensor in found:
        device = wanted(tensor)
        if device is None:
            continue
        storage = tensor.untyped_storage()
        if storage._cdata not in seen and storage.nbytes():
            seen.add(storage._cdata)
            yield name, device, storage
