"""What TorchOffload refuses, by name and with the way out."""

from __future__ import annotations

import gc
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from slicelock.errors import ConfigurationError, SnapshotFailed
from slicelock.hooks import TorchOffload
from slicelock.hooks.torch_offload.layout import Place
from slicelock.hooks.torch_offload.refusals import (
    Segment,
    Segments,
    instances_of,
    refuse_at_a_glance,
    refuse_by_allocator,
    refuse_graphs,
)
from slicelock.hooks.torch_offload.torch_module import load_torch
from tests.support.torch_machine import HostMachine


class Storage:
    """As much of a storage as the checks look at."""

    def __init__(self, resizable: bool = True) -> None:
        self._resizable = resizable
        self._cdata = id(self)

    def resizable(self) -> bool:
        return self._resizable


def place(name: str, address: int, nbytes: int = 100, **options: bool) -> Place:
    return Place(name, Storage(**options), address, nbytes, nbytes)


def test_storages_of_others_are_named_the_first_few() -> None:
    borrowed = [place(f"w{number}", number * 1000, resizable=False) for number in range(5)]
    with pytest.raises(
        SnapshotFailed, match=r"^w0, w1, w2 and 2 more belong to another allocator.*nothing was"
    ):
        refuse_at_a_glance([place("own", 9000), *borrowed])


def test_storages_over_the_same_memory_are_refused() -> None:
    with pytest.raises(SnapshotFailed, match="second overlap other storages"):
        refuse_at_a_glance([place("second", 1050), place("first", 1000)])
    refuse_at_a_glance([place("second", 1100), place("first", 1000)])


def test_storages_shared_through_cuda_ipc_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, gone = place("shared", 0), place("gone", 1000)
    module = ModuleType("torch.multiprocessing.reductions")
    module.shared_cache = {  # type: ignore[attr-defined]
        "a": SimpleNamespace(cdata=shared.storage._cdata, expired=lambda: False),
        "b": SimpleNamespace(cdata=gone.storage._cdata, expired=lambda: True),
    }
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    refuse_at_a_glance([gone])
    with pytest.raises(
        SnapshotFailed, match=r"shared are shared with another process through CUDA IPC.*drop them"
    ):
        refuse_at_a_glance([gone, shared])


def segments(*facts: Segment) -> Segments:
    return Segments(facts)


def test_each_storage_is_looked_up_in_the_allocator_and_knows_its_stream() -> None:
    places = [place("a", 1000), place("b", 5000), place("c", 1900)]
    refuse_by_allocator(
        places, segments(Segment(5000, 1000, 0, (0, 0), 100), Segment(1000, 1000, 7, (0, 0), 100))
    )
    assert [one.stream for one in places] == [7, 0, 7]


@pytest.mark.parametrize("address", [999, 2000])
def test_memory_that_is_not_the_allocators_is_refused(address: int) -> None:
    with pytest.raises(SnapshotFailed, match="w are not in the memory of torch's allocator"):
        refuse_by_allocator([place("w", address)], segments(Segment(1000, 1000, 0, (0, 0), 100)))


def test_private_pools_are_refused() -> None:
    with pytest.raises(SnapshotFailed, match=r"w lie in a private memory pool.*MemorySaver"):
        refuse_by_allocator([place("w", 1000)], segments(Segment(1000, 1000, 0, (0, 3), 100)))


def test_a_graphs_own_memory_tells_of_the_graph() -> None:
    assert segments(Segment(0, 1000, 0, (4, 0), 10)).of_graphs
    assert not segments(Segment(0, 1000, 0, (4, 0), 0), Segment(5000, 1, 0, (0, 9), 1)).of_graphs


def test_facts_of_the_allocator() -> None:
    facts = {"address": 5, "total_size": 10, "stream": 3, "active_size": 1, "device": 0}

    def snapshot(**options: Any) -> list[dict[str, Any]]:
        if options:
            raise TypeError("an older torch")
        return [facts, {**facts, "address": 50, "device": 1}]

    library = SimpleNamespace(cuda=SimpleNamespace(memory_snapshot=snapshot))
    found = Segments.of(library, 0)
    assert found.at(14) == Segment(5, 10, 3, (0, 0), 1)
    assert found.at(50) is None


def test_graphs_are_refused_with_the_way_out() -> None:
    refuse_graphs(False)
    with pytest.raises(SnapshotFailed, match=r"captured CUDA graphs.*MemorySaver.*graphs_elsewhere=True"):
        refuse_graphs(True)


def test_every_graph_is_known_from_its_making_to_its_end() -> None:
    class Graph:
        def __init__(self, keep: bool = False) -> None:
            self.keep = keep

    class Special(Graph):
        pass

    early, other = Graph(), Graph  # one more reference to the class, which goes below
    known = instances_of(Graph)
    assert known is instances_of(Graph)
    assert set(known) == {early}
    del other
    made = [Graph(keep=True), Special()]
    assert made[0].keep
    assert set(known) == {early, *made}
    del early
    made.clear()
    gc.collect()
    assert not known


# ------------------------------------------------------------ frameworks that manage memory themselves


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def engine_of(torch: Any, framework: str) -> Any:
    return type("Engine", (torch.nn.Module,), {"__module__": f"{framework}.runtime.engine"})()


@pytest.mark.parametrize(("framework", "call"), [("deepspeed", "offload_states"), ("megatron", "buffers")])
def test_engines_are_refused_at_once(torch: Any, framework: str, call: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Engine belongs to {framework}.*{call}.*SelfOffload"):
        TorchOffload([torch.ones(1), engine_of(torch, framework)], machine=HostMachine())


def test_modules_inside_are_looked_at(torch: Any) -> None:
    with pytest.raises(ConfigurationError, match="Sequential belongs to megatron"):
        TorchOffload(torch.nn.Sequential(engine_of(torch, "megatron")), machine=HostMachine())


@pytest.mark.parametrize(("mark", "framework"), [("ds_id", "deepspeed"), ("main_grad", "megatron")])
def test_parameters_tell_who_manages_them(torch: Any, mark: str, framework: str) -> None:
    model = torch.nn.Linear(1, 1)
    setattr(model.bias, mark, 1)
    with pytest.raises(ConfigurationError, match=f"Linear belongs to {framework}"):
        TorchOffload(discard=[(model, lambda one: None)], machine=HostMachine())


def test_optimizers_are_looked_at(torch: Any) -> None:
    kind = type("ZeroOptimizer", (), {"__module__": "deepspeed.zero", "param_groups": [], "state": {}})
    with pytest.raises(ConfigurationError, match="ZeroOptimizer belongs to deepspeed"):
        TorchOffload(kind(), machine=HostMachine())


def test_without_torch_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ConfigurationError, match=r"PyTorch cannot be imported.*Install torch"):
        load_torch()
