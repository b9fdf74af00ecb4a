"""What is found in the things that a job hands over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.things import Walk, is_optimizer, storages

torch = pytest.importorskip("torch")


def names(thing: Any, **options: bool) -> list[str]:
    return [name for name, _ in Walk(torch, **options).of(thing)]


def test_a_module_shows_parameters_buffers_and_gradients() -> None:
    model = torch.nn.BatchNorm1d(4)
    model.weight.grad = torch.ones(4)
    found = names(model)
    assert found == [
        "BatchNorm1d.weight",
        "BatchNorm1d.weight.grad",
        "BatchNorm1d.bias",
        "BatchNorm1d.running_mean",
        "BatchNorm1d.running_var",
        "BatchNorm1d.num_batches_tracked",
    ]


def test_buffers_that_are_not_saved_are_found_too() -> None:
    model = torch.nn.Module()
    model.register_buffer("rope", torch.ones(2), persistent=False)
    assert names(model) == ["Module.rope"]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adafactor", "Adagrad"])
def test_an_optimizer_shows_what_it_keeps(kind: str) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = getattr(torch.optim, kind)(
        model.parameters(), lr=torch.tensor(0.1) if kind == "Adam" else 0.1
    )
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer.step()
    found = {id(tensor) for _, tensor in Walk(torch).of(optimizer)}
    kept = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    assert {id(one) for one in [*model.parameters(), *kept]} <= found
    assert kind != "Adam" or id(optimizer.param_groups[0]["lr"]) in found


def test_a_wrapper_of_an_optimizer_is_one() -> None:
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    wrapped = SimpleNamespace(param_groups=inner.param_groups, state=inner.state)
    assert is_optimizer(wrapped)
    assert len(names(wrapped)) == 1


def test_containers_nest_and_may_contain_themselves() -> None:
    inner: list[Any] = [torch.ones(1), 3, "text", None]
    inner.append(inner)
    found = names({"a": (inner, {"b": torch.ones(1)}), 4: {torch.ones(1)}})
    assert found == ["dict[a][0][0]", "dict[a][1][b]", "dict[4][0]"]


def test_callables_are_called_only_if_they_may_be() -> None:
    def batches() -> list[Any]:
        return [torch.ones(1), lambda: torch.ones(2)]

    assert names(batches) == ["batches()[0]", "<lambda>()"]
    assert names(batches, call=False) == []


def test_containers_that_callables_make_are_each_looked_into() -> None:
    """One is gone when the next one is made, which may have its address."""
    assert len(names([lambda: [torch.ones(1)] for _ in range(5)])) == 5


def test_what_can_have_no_tensors_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"how to find tensors in list\[1\] \(a object\)"):
        names([torch.ones(1), object()])


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_come_as_their_parts() -> None:
    dense = torch.eye(3)
    assert names(dense.to_sparse()) == ["Tensor.indices", "Tensor.values"]
    assert names(dense.to_sparse_csr()) == ["Tensor.crow_indices", "Tensor.col_indices", "Tensor.values"]
    assert names(dense.to_sparse_csc()) == ["Tensor.ccol_indices", "Tensor.row_indices", "Tensor.values"]


def test_tensors_made_of_tensors_come_as_their_parts() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    found = dict(Walk(torch).of(nested))
    assert all(type(one) is torch.Tensor for one in found.values())
    assert sum(one.numel() for one in found.values()) >= 5


def test_the_flat_parameter_of_fsdp1_is_found() -> None:
    model = torch.nn.Module()
    flat = torch.nn.Parameter(torch.ones(10))
    flat._saved_grad_shard = torch.ones(10)
    model._handle = SimpleNamespace(flat_param=flat)
    assert names(model) == ["Module..flat_param", "Module..flat_param.grad"]


def test_every_storage_once_by_the_first_name_and_none_that_is_empty() -> None:
    base = torch.ones(10)
    tensors = [("first", base), ("view", base[2:4]), ("empty", torch.empty(0)), ("other", torch.ones(1))]
    assert [name for name, _, _ in storages(iter(tensors), lambda tensor: 0)] == ["first", "other"]


def test_only_storages_on_wanted_devices() -> None:
    tensors = [("here", torch.ones(1)), ("there", torch.ones(2))]
    found = list(storages(iter(tensors), lambda tensor: 3 if tensor.numel() == 2 else None))
    assert [(name, device) for name, device, _ in found] == [("there", 3)]
