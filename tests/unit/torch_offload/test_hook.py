"""TorchOffload on a device made of host memory: what leaves comes back the same, as the same objects."""

from __future__ import annotations

import copy
import logging
import threading
from typing import Any

import pytest

from slicelock.errors import ConfigurationError, RestoreFailed, SnapshotFailed
from slicelock.hooks import TorchOffload
from tests.support.torch_machine import BLOCK, HostMachine
from tests.support.wait import wait_until

torch = pytest.importorskip("torch")


def model_and_optimizer() -> tuple[Any, Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))
    model.register_buffer("scale", torch.full((3,), 2.0))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def step(model: Any, optimizer: Any, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    batch = torch.randn(16, 300, generator=generator)
    loss = model(batch).square().mean() * model.scale[0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def all_tensors(model: Any, optimizer: Any) -> list[Any]:
    grads = [one.grad for one in model.parameters() if one.grad is not None]
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [*model.parameters(), *model.buffers(), *grads, *states]


def test_training_goes_on_bit_for_bit(offload: Any) -> None:
    alone = model_and_optimizer()
    expected = [step(*alone, seed) for seed in range(4)]
    model, optimizer = model_and_optimizer()
    hook = offload(model, optimizer)
    losses = []
    for seed in range(4):
        losses.append(step(model, optimizer, seed))
        hook.offload()
        hook.reload()
    assert losses == expected


def test_every_tensor_is_the_object_it_was_with_its_contents(offload: Any) -> None:
    model, optimizer = model_and_optimizer()
    step(model, optimizer, 0)
    before = all_tensors(model, optimizer)
    contents = [one.detach().clone() for one in before]
    view = next(model.parameters())[1:3]
    hook = offload(model, optimizer)
    moved = hook.offload()
    assert moved == sum(one.untyped_storage().nbytes() for one in contents)
    assert all(one.untyped_storage().nbytes() == 0 for one in before)
    back = hook.reload()
    after = all_tensors(model, optimizer)
    assert back == moved
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(after, contents, strict=True))
    assert torch.equal(view, contents[0][1:3])


def test_a_storage_is_copied_once_whoever_shares_it(offload: Any, machine: HostMachine) -> None:
    base = torch.arange(1000.0)
    hook = offload([base, base[10:20], {"tied": base.view(10, 100)}], base)
    assert hook.offload() == 4000
    assert machine.devices[0].copied == [("out", 4000)]
    hook.reload()
    assert torch.equal(base, torch.arange(1000.0))


def test_callables_are_asked_at_each_offload(offload: Any) -> None:
    kept: list[Any] = [torch.ones(100)]
    hook = offload(lambda: kept)
    assert hook.offload() == 400
    hook.reload()
    kept.append(torch.ones(50))
    assert hook.offload() == 600
    hook.reload()


def test_it_is_idempotent(offload: Any, machine: HostMachine) -> None:
    hook = offload(torch.ones(100))
    assert hook.reload() == 0
    assert hook.offload() == 400
    assert hook.offload() == 0
    assert hook.reload() == 400
    assert hook.reload() == 0
    assert [way for way, _ in machine.devices[0].copied] == ["out", "in"]


def test_nothing_on_a_device_is_nothing_to_do(offload: Any, machine: HostMachine) -> None:
    tensor = torch.ones(10)
    machine.on[tensor.untyped_storage()._cdata] = None
    hook = offload(tensor, torch.empty(0), None)
    assert (hook.offload(), hook.reload()) == (0, 0)
    assert torch.equal(tensor, torch.ones(10))


def test_offloaded_storages_are_forbidden_and_reloaded_ones_are_not(
    offload: Any, machine: HostMachine
) -> None:
    model, _ = model_and_optimizer()
    hook = offload(model)
    hook.offload()
    assert len(machine.guard.forbidden) == 5
    hook.reload()
    assert not machine.guard.forbidden


def test_a_storage_found_empty_stays_empty(offload: Any) -> None:
    freed, kept = torch.ones(100), torch.ones(10)
    freed.untyped_storage().resize_(0)
    hook = offload(freed, kept)
    assert hook.offload() == 40
    hook.reload()
    assert freed.untyped_storage().nbytes() == 0


def test_several_devices_at_once(offload: Any, machine: HostMachine) -> None:
    first, second = torch.full((1000,), 1.0), torch.full((2000,), 2.0)
    machine.on[second.untyped_storage()._cdata] = 1
    hook = offload([first, second])
    assert hook.offload() == 12_000
    assert (machine.devices[0].copied, machine.devices[1].copied) == ([("out", 4000)], [("out", 8000)])
    hook.reload()
    assert first.sum() == 1000
    assert second.sum() == 4000


def test_memory_comes_back_for_the_stream_that_it_came_from(offload: Any, machine: HostMachine) -> None:
    hook = offload(torch.ones(10))
    hook.offload()
    machine.devices[0].checked[0].stream = 77
    hook.reload()
    assert machine.devices[0].streams == [77]


# ------------------------------------------------------------ what is discarded


def test_what_is_discarded_is_dropped_and_loaded_again(offload: Any, machine: HostMachine) -> None:
    model, reference = torch.nn.Linear(4, 4), torch.nn.Linear(100, 100)
    saved = copy.deepcopy(reference.state_dict())
    hook = offload(model, discard=[(reference, lambda one: one.load_state_dict(saved))])
    assert hook.offload() == 80
    assert reference.weight.untyped_storage().nbytes() == 0
    hook.reload()
    assert torch.equal(reference.weight, saved["weight"])
    assert sum(nbytes for way, nbytes in machine.devices[0].copied if way == "in") == 80


def test_what_is_both_kept_and_discarded_is_kept(offload: Any) -> None:
    tensor = torch.ones(100)
    hook = offload(tensor, discard=[(tensor, lambda one: None)])
    assert hook.offload() == 400
    hook.reload()
    assert torch.equal(tensor, torch.ones(100))


def test_loading_again_may_fail_and_be_tried_again(offload: Any) -> None:
    reference, kept = torch.ones(10), torch.ones(20)
    fail = [True]

    def load(tensor: Any) -> None:
        if fail[0]:
            raise OSError("no such file")
        tensor.fill_(3)

    hook = offload(kept, discard=[(reference, load)])
    hook.offload()
    with pytest.raises(RestoreFailed, match=r"Loading Tensor again.*no such file.*a reload tries again"):
        hook.reload()
    assert kept.untyped_storage().nbytes() == reference.untyped_storage().nbytes() == 0
    fail[0] = False
    assert hook.reload() == 80
    assert torch.equal(reference, torch.full((10,), 3.0))
    assert torch.equal(kept, torch.ones(20))


def test_discard_takes_pairs() -> None:
    with pytest.raises(ConfigurationError, match="pairs of a thing and a callable"):
        TorchOffload(discard=[torch.ones(1)])


# ------------------------------------------------------------ saving without a turn


def test_a_module_says_that_it_is_away_and_has_its_own_hooks_back(offload: Any) -> None:
    model, elsewhere, reference = torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)
    listed, made = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    saved = copy.deepcopy(reference.state_dict())
    model.register_forward_pre_hook(lambda *_: None)
    before = list(model._forward_pre_hooks.items())

    def load(one: Any) -> None:
        one.load_state_dict(saved)
        one(torch.ones(1, 4))

    hook = offload(model, elsewhere, {"a": [listed]}, lambda: made, discard=[(reference, load)])
    for _ in range(2):
        hook.offload()
        for away in (model, reference, listed, made):
            with pytest.raises(RuntimeError, match=r"slicelock: this Linear is offloaded.*inside a turn"):
                away(torch.ones(1, 4))
        assert elsewhere(torch.ones(1)) == 1
        hook.reload()
        assert list(model._forward_pre_hooks.items()) == before
        assert not reference._forward_pre_hooks
        assert model(torch.ones(1, 4)).shape == (1, 4)


@pytest.mark.filterwarnings("ignore")  # torch deprecates TorchScript
def test_a_module_that_takes_no_hooks_is_moved_all_the_same(offload: Any) -> None:
    scripted = torch.jit.script(torch.nn.Linear(4, 4))
    before = scripted(torch.ones(1, 4))
    hook = offload(scripted)
    assert hook.offload() == (16 + 4) * 4
    hook.reload()
    assert torch.equal(scripted(torch.ones(1, 4)), before)


def test_a_parameter_that_waits_for_its_first_input_is_nothing_to_move(offload: Any) -> None:
    half = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Linear(4, 4))
    hook = offload(half)
    assert hook.offload() == (16 + 4) * 4
    hook.reload()
    assert half(torch.ones(1, 2)).shape == (1, 4)


def test_what_is_elsewhere_needs_no_storage(
    offload: Any, machine: HostMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, opaque, usual = torch.nn.Linear(4, 4), torch.nn.Module(), machine.index_of
    opaque.register_buffer("opaque", torch.ones(4).to_mkldnn())
    monkeypatch.setattr(machine, "index_of", lambda one: usual(one) if one.layout is torch.strided else None)
    hook = offload(opaque, model)
    assert hook.offload() == (16 + 4) * 4
    hook.reload()


def test_a_state_dict_is_read_from_the_host_copy(offload: Any) -> None:
    model, optimizer = model_and_optimizer()
    step(model, optimizer, 0)
    expected = copy.deepcopy(model.state_dict())
    hook = offload(model, optimizer)
    hook.offload()
    saved = hook.state_dict()
    moments = hook.state_dict(optimizer)
    hook.reload()
    assert saved.keys() == expected.keys()
    assert all(torch.equal(saved[name], expected[name]) for name in saved)
    assert saved._metadata == expected._metadata
    assert torch.equal(moments["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10)).load_state_dict(
        saved, strict=False
    )


def test_a_state_dict_is_a_copy_when_nothing_is_offloaded_too(offload: Any) -> None:
    model = torch.nn.Linear(3, 3)
    saved = offload(model).state_dict()
    before = saved["weight"].clone()
    with torch.no_grad():
        model.weight.add_(1)
    assert torch.equal(saved["weight"], before)


def test_views_of_one_storage_share_one_in_the_state_dict(offload: Any) -> None:
    model = torch.nn.Linear(4, 4)
    model.register_buffer("part", model.weight.detach()[1:])
    hook = offload(model)
    hook.offload()
    saved = hook.state_dict()
    assert saved["part"].untyped_storage()._cdata == saved["weight"].untyped_storage()._cdata
    assert torch.equal(saved["part"], saved["weight"][1:])
    hook.reload()


def test_a_state_dict_needs_to_know_whose(offload: Any) -> None:
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ConfigurationError, match=r"There are 2 modules.*state_dict\(model\)"):
        offload(model, torch.nn.Linear(1, 1)).state_dict()
    assert set(offload(model, torch.nn.Linear(1, 1)).state_dict(model)) == {"weight", "bias"}
    assert set(offload({"model": model, "other": torch.ones(1)}).state_dict()) == {"weight", "bias"}


def test_what_was_discarded_cannot_be_saved(offload: Any) -> None:
    model = torch.nn.Linear(1, 1)
    hook = offload(discard=[(model, lambda one: None)])
    hook.offload()
    with pytest.raises(ConfigurationError, match=r"Linear\.weight was discarded"):
        hook.state_dict(model)
    hook.reload()


# ------------------------------------------------------------ the pool


def test_the_pool_is_made_ahead_and_grows_with_the_model(offload: Any) -> None:
    tensors = [torch.ones(1000)]
    hook = offload(tensors)
    assert hook.prepare(10)
    assert hook.pool_bytes == BLOCK
    tensors.append(torch.ones(BLOCK // 4))
    assert hook.prepare(10)
    assert hook.pool_bytes == 2 * BLOCK


@pytest.mark.parametrize("given", [lambda *things: things, lambda *things: [{"all": things}]])
def test_the_pool_grows_when_an_optimizer_has_made_its_state(offload: Any, given: Any) -> None:
    parameter = torch.nn.Parameter(torch.ones(BLOCK // 4 - 128))
    optimizer = torch.optim.AdamW([parameter])
    hook = offload(*given(parameter, optimizer))
    assert hook.prepare(10)
    assert hook.pool_bytes == BLOCK
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    wait_until(lambda: hook.pool_bytes == 4 * BLOCK, what="room for two moments and a gradient")


def test_what_does_not_fit_stays_with_a_warning_that_says_how_much(
    machine: HostMachine, hooks: list[TorchOffload], caplog: pytest.LogCaptureFixture
) -> None:
    machine.allowance.limit = BLOCK
    small, large = torch.ones(1000), torch.ones(BLOCK // 2)
    hooks.append(hook := TorchOffload(small, large, machine=machine))
    with caplog.at_level(logging.WARNING, "slicelock"):
        moved = hook.offload()
    assert (moved, moved.left) == (4000, 2 * BLOCK)
    assert "4 MiB of tensors do not fit into the host pool (SLICELOCK_HOST_POOL is 2 MiB)" in caplog.text
    assert large.sum() == BLOCK // 2
    hook.reload()
    assert small.sum() == 1000


def test_no_pool_at_all_is_a_refusal(machine: HostMachine, hooks: list[TorchOffload]) -> None:
    machine.allowance.limit = 0
    tensor = torch.ones(1000)
    hooks.append(hook := TorchOffload(tensor, machine=machine))
    with pytest.raises(SnapshotFailed, match="No host memory can be pinned: SLICELOCK_HOST_POOL is 0 MiB"):
        hook.offload()
    assert tensor.sum() == 1000


def test_fifty_switches_without_growth(offload: Any, machine: HostMachine) -> None:
    model, optimizer = model_and_optimizer()
    step(model, optimizer, 0)
    hook = offload(model, optimizer)
    hook.offload()
    hook.reload()
    first = (hook.pool_bytes, threading.active_count())
    for _ in range(50):
        hook.offload()
        hook.reload()
    assert (hook.pool_bytes, threading.active_count()) == first


# ------------------------------------------------------------ other tensors


def test_other_tensors_that_stay_are_told_once(
    offload: Any, machine: HostMachine, caplog: pytest.LogCaptureFixture
) -> None:
    hook = offload(torch.ones(10))
    machine.device(0).used = 3 << 30
    with caplog.at_level(logging.WARNING, "slicelock"):
        for _ in range(3):
            hook.offload()
            hook.reload()
    assert caplog.text.count("3.00 GiB of tensors that TorchOffload was not given stay on host:0") == 1
