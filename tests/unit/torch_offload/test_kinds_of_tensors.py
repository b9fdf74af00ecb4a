"""Every kind of tensor is moved whole, or refused by name before anything has moved."""

from __future__ import annotations

from typing import Any

import pytest

from slicelock.errors import ConfigurationError
from tests.support.torch_machine import HostMachine

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of what is young or old in it


class Wrapped(torch.Tensor):
    """Made of another tensor, and does not say so."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise NotImplementedError


def fake() -> Any:
    with torch._subclasses.fake_tensor.FakeTensorMode():
        return torch.ones(8)


def quantized() -> Any:
    return torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint8)


def ragged() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def conjugated() -> Any:
    return torch.tensor([1 + 2j, 3 - 1j]).conj()


WHOLE = {
    "complex": lambda: torch.tensor([1 + 2j]),
    "conjugated": conjugated,
    "negated": lambda: conjugated().imag,
    "bool": lambda: torch.tensor([True, False]),
    "float8": lambda: torch.ones(8).to(torch.float8_e4m3fn).view(torch.uint8),
    "bfloat16": lambda: torch.ones(8, dtype=torch.bfloat16),
    "not contiguous": lambda: torch.arange(100.0).reshape(10, 10).t()[::2, ::3],
    "expanded": lambda: torch.ones(1).expand(8),
    "subclass": lambda: torch.ones(8).as_subclass(type("Plain", (torch.Tensor,), {})),
    "quantized": quantized,
    "inference": torch.inference_mode()(lambda: torch.ones(8)),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_comes_back_as_it_was(offload: Any, kind: str) -> None:
    tensor = WHOLE[kind]()
    before = tensor.clone()
    hook = offload(tensor)
    assert hook.offload() > 0
    assert tensor.untyped_storage().nbytes() == 0
    hook.reload()
    assert torch.equal(tensor, before)


@pytest.mark.parametrize("thing", [lambda: Wrapped(torch.ones(8)), fake])
def test_what_has_no_memory_of_its_own_is_refused_by_name(offload: Any, thing: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"dict\[odd\] has no memory of its own.*Give TorchOffload"):
        offload({"plain": torch.ones(8), "odd": thing()})


def test_one_that_appears_later_is_refused_before_anything_has_moved(
    offload: Any, machine: HostMachine
) -> None:
    kept = [torch.ones(8)]
    hook = offload(kept)
    kept.append(fake())
    with pytest.raises(ConfigurationError, match=r"list\[1\] has no memory"):
        hook.offload()
    assert kept[0].sum() == 8
    assert not machine.device(0).copied


def module_with(tensor: Any) -> Any:
    module = torch.nn.Module()
    module.register_buffer("kept", tensor)
    return module


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("made", [conjugated, lambda: conjugated().imag])
def test_a_state_dict_has_the_values_of_a_lazy_view(offload: Any, made: Any, away: bool) -> None:
    tensor = made()
    before = tensor.clone()
    hook = offload(module_with(tensor))
    if away:
        hook.offload()
    assert torch.equal(hook.state_dict()["kept"], before)


@pytest.mark.parametrize("made", [quantized, ragged])
def test_a_state_dict_refuses_what_is_more_than_its_memory(offload: Any, made: Any) -> None:
    hook = offload(module_with(made()))
    with pytest.raises(ConfigurationError, match="is made of other tensors, so it is not copied"):
        hook.state_dict()


def test_a_state_dict_passes_on_what_has_no_memory(offload: Any, machine: HostMachine) -> None:
    module = module_with(torch.empty(8, device="meta"))
    machine.on[module.kept.untyped_storage()._cdata] = None
    assert offload(module).state_dict()["kept"].is_meta
