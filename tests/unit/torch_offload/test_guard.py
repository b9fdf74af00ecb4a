"""What touching an offloaded tensor says. The flag exists only in CUDA builds of torch; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.hooks import TorchOffload
from slicelock.hooks.torch_offload.guard import ByteGuard, NativeGuard, NoGuard, guard_for
from tests.support.torch_machine import HostMachine

torch = pytest.importorskip("torch")

guard = guard_for(torch)
needs_the_flag = pytest.mark.skipif(isinstance(guard, NoGuard), reason="this build of torch has no such flag")


@needs_the_flag
def test_touching_is_an_error_that_says_what_happened() -> None:
    tensor, other = torch.arange(16.0).reshape(4, 4), torch.ones(4, 4)
    view = tensor[1]
    hook = TorchOffload(tensor, machine=HostMachine(guard=guard))
    hook.offload()
    touches: list[Callable[[], object]] = [
        lambda: tensor + 1,
        lambda: view * 2,
        lambda: other @ tensor,
        lambda: other.copy_(tensor),
        tensor.sum,
        tensor.zero_,
        tensor.clone,
        tensor.data_ptr,
    ]
    for touch in touches:
        with pytest.raises(RuntimeError, match=r"slicelock: this tensor is offloaded.*Use it inside a turn"):
            touch()
    hook.reload()
    assert torch.equal(tensor, torch.arange(16.0).reshape(4, 4))
    assert torch.equal(view, torch.arange(4.0, 8.0))
    hook.close()


@needs_the_flag
def test_what_needs_no_data_works_meanwhile() -> None:
    parameter = torch.nn.Parameter(torch.ones(3, 3))
    hook = TorchOffload(parameter, machine=HostMachine(guard=guard))
    hook.offload()
    assert parameter.shape == parameter.detach().shape == (3, 3)
    assert parameter.device.type == "cpu"
    assert parameter.requires_grad
    hook.close()


@needs_the_flag
def test_forbidding_twice_and_allowing_twice_are_once() -> None:
    storage = torch.ones(4).untyped_storage()
    guard.forbid(storage)
    guard.forbid(storage)
    guard.allow(storage)
    guard.allow(storage)
    assert storage.data_ptr()


def library(**functions: Any) -> Any:
    return SimpleNamespace(_C=SimpleNamespace(**functions), UntypedStorage=torch.UntypedStorage)


def test_without_the_flag_there_is_no_guard() -> None:
    assert isinstance(guard_for(library()), NoGuard)


def test_torch_clears_the_flag_itself_where_it_can() -> None:
    said: list[object] = []
    made = guard_for(
        library(
            _set_storage_data_ptr_access_error_msg=lambda address, text: said.append((address, text[:10])),
            _clear_storage_data_ptr_access_error_msg=said.append,
        )
    )
    assert isinstance(made, NativeGuard)
    made.forbid(SimpleNamespace(_cdata=5))
    made.allow(SimpleNamespace(_cdata=5))
    assert said == [(5, "slicelock:"), 5]


def test_a_flag_that_is_not_found_is_not_used() -> None:
    assert isinstance(guard_for(library(_set_storage_data_ptr_access_error_msg=lambda *_: None)), NoGuard)


@needs_the_flag
@pytest.mark.skipif(not isinstance(guard, ByteGuard), reason="this torch clears the flag itself")
def test_the_bytes_are_those_that_torch_set() -> None:
    storage = torch.ones(4).untyped_storage()
    before = storage.data_ptr()
    for _ in range(3):
        guard.forbid(storage)
        with pytest.raises(RuntimeError, match="slicelock"):
            storage.data_ptr()
        guard.allow(storage)
        assert storage.data_ptr() == before
