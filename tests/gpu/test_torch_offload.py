"""TorchOffload on a real GPU: the same bits, the same objects, and nothing left on the device."""

from __future__ import annotations

import gc
import logging
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from slicelock.hooks import TorchOffload

Make = Callable[..., TorchOffload]
MIB = 1 << 20


def model_and_optimizer(torch: Any, width: int = 1024) -> tuple[Any, Any]:
    torch.manual_seed(1)
    layers = [
        torch.nn.Linear(width, width),
        torch.nn.LayerNorm(width),
        torch.nn.GELU(),
        torch.nn.Linear(width, 8),
    ]
    model = torch.nn.Sequential(*layers).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def step(torch: Any, model: Any, optimizer: Any, seed: int) -> float:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    batch = torch.randn(64, 1024, device="cuda", generator=generator)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def all_tensors(model: Any, optimizer: Any) -> list[Any]:
    states = [value for state in optimizer.state.values() for value in state.values() if value.is_cuda]
    return [*model.parameters(), *(one.grad for one in model.parameters()), *states]


def test_training_goes_on_bit_for_bit(torch: Any, offload: Make) -> None:
    alone = model_and_optimizer(torch)
    expected = [step(torch, *alone, seed) for seed in range(6)]
    model, optimizer = model_and_optimizer(torch)
    hook = offload(model, optimizer)
    losses = []
    for seed in range(6):
        losses.append(step(torch, model, optimizer, seed))
        hook.offload()
        hook.reload()
    assert losses == expected


def test_the_device_is_empty_meanwhile_and_the_objects_are_the_same(torch: Any, offload: Make) -> None:
    model, optimizer = model_and_optimizer(torch)
    step(torch, model, optimizer, 0)
    before = all_tensors(model, optimizer)
    contents = [one.detach().cpu() for one in before]
    view = model[0].weight[5:7]
    hook = offload(model, optimizer)
    size, used = sum(one.untyped_storage().nbytes() for one in before), torch.cuda.memory_allocated()
    moved = hook.offload()
    assert moved == size
    assert torch.cuda.memory_allocated() <= used - size
    hook.reload()
    assert all(one is other for one, other in zip(before, all_tensors(model, optimizer), strict=True))
    assert all(torch.equal(one.cpu(), other) for one, other in zip(before, contents, strict=True))
    assert torch.equal(view.cpu(), contents[0][5:7])


def test_touching_an_offloaded_tensor_is_an_error_and_no_fault(torch: Any, offload: Make) -> None:
    tensor = torch.arange(1024.0, device="cuda").reshape(32, 32)
    row, other = tensor[3], torch.ones(32, 32, device="cuda")
    hook = offload(tensor)
    hook.offload()
    touches: dict[str, Callable[[], object]] = {
        "elementwise": lambda: tensor + 1,
        "reduction": tensor.sum,
        "matrix product": lambda: other @ tensor,
        "in place": tensor.zero_,
        "of a view": lambda: row * 2,
        "copy from": lambda: other.copy_(tensor),
        "copy to the host": tensor.cpu,
        "foreach": lambda: torch._foreach_add_([tensor], 1),
        "address": tensor.data_ptr,
    }
    for name, touch in touches.items():
        with pytest.raises(RuntimeError, match="slicelock: this tensor is offloaded"):
            print(name, touch())
    for view in (lambda: tensor[0], lambda: repr(tensor)):  # torch's own words, but no fault either
        with pytest.raises(RuntimeError, match="storage of size 0"):
            print(view())
    torch.cuda.synchronize()
    hook.reload()
    assert torch.equal(tensor.cpu(), torch.arange(1024.0).reshape(32, 32))


def test_many_small_tensors_of_all_sizes(torch: Any, offload: Make) -> None:
    tensors = [torch.full((size,), size, dtype=torch.int32, device="cuda") for size in range(1, 4000, 3)]
    del tensors[::7]  # holes between neighbours
    hook = offload(tensors)
    hook.offload()
    hook.reload()
    assert all(bool((one == one.numel()).all()) for one in tensors)


def test_a_large_tensor_over_many_blocks_of_the_pool(torch: Any, offload: Make) -> None:
    large = torch.arange(300 * MIB, dtype=torch.int32, device="cuda")
    hook = offload(large)
    assert hook.offload() == 1200 * MIB
    hook.reload()
    assert torch.equal(large[::MIB].cpu(), torch.arange(0, 300 * MIB, MIB, dtype=torch.int32))
    assert int(large[-1]) == 300 * MIB - 1


def test_memory_comes_back_for_the_stream_that_it_came_from(torch: Any, offload: Make) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.ones(32 * MIB, device="cuda")
    side.synchronize()
    hook = offload(tensor)
    hook.offload()
    hook.reload()
    segments = [one for one in torch.cuda.memory_snapshot() if one["address"] == tensor.data_ptr()]
    assert [one["stream"] for one in segments] == [side.cuda_stream]


def test_a_state_dict_needs_no_turn(torch: Any, offload: Make) -> None:
    model, optimizer = model_and_optimizer(torch)
    step(torch, model, optimizer, 0)
    expected = {name: value.cpu() for name, value in model.state_dict().items()}
    hook = offload(model, optimizer)
    hook.offload()
    used = torch.cuda.memory_allocated()
    saved = hook.state_dict()
    assert torch.cuda.memory_allocated() == used
    hook.reload()
    assert all(torch.equal(saved[name], value) for name, value in expected.items())


def test_what_is_discarded_is_loaded_again(torch: Any, offload: Make) -> None:
    reference = torch.nn.Linear(512, 512).cuda()
    saved = {name: value.cpu() for name, value in reference.state_dict().items()}
    hook = offload(discard=[(reference, lambda one: one.load_state_dict(saved))])
    used = torch.cuda.memory_allocated()
    assert hook.offload() == 0
    assert torch.cuda.memory_allocated() <= used - MIB
    hook.reload()
    assert torch.equal(reference.weight.cpu(), saved["weight"])


def test_fifty_switches_without_growth(torch: Any, offload: Make) -> None:
    tensors = [torch.ones(8 * MIB, device="cuda") for _ in range(16)]
    hook = offload(tensors)

    def used() -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize(), torch.cuda.mem_get_info()[0]

    for _ in range(3):
        hook.offload()
        hook.reload()
    host, free = used()
    for _ in range(50):
        hook.offload()
        hook.reload()
    host_later, free_later = used()
    assert host_later - host < 16 * MIB
    assert free - free_later < 16 * MIB


def test_no_reload_without_room(torch: Any, offload: Make) -> None:
    tensor = torch.ones(512 * MIB, device="cuda")
    hook = offload(tensor)
    hook.offload()
    free, _ = torch.cuda.mem_get_info()
    hog = torch.empty(free - 1024 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(RestoreFailed, match=r"cuda:0 has .* free, and 2.00 GiB are to come back"):
        hook.reload()
    del hog
    torch.cuda.empty_cache()
    hook.reload()
    assert tensor.sum() == 512 * MIB


# ------------------------------------------------------------ refusals


def test_a_captured_graph_is_refused_unless_it_is_elsewhere(torch: Any, offload: Make) -> None:
    tensor = torch.ones(MIB, device="cuda")
    hook = offload(tensor)
    hook.offload()
    hook.reload()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.mul_(2)
    graph.replay()
    with pytest.raises(SnapshotFailed, match=r"captured CUDA graphs.*MemorySaver"):
        hook.offload()
    assert tensor.sum() == 2 * MIB
    assert offload(tensor, graphs_elsewhere=True).offload() == 4 * MIB
    del graph
    gc.collect()
    assert offload(torch.ones(MIB, device="cuda")).offload() == 4 * MIB


def test_a_private_pool_is_refused_by_name(torch: Any, offload: Make) -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.ones(MIB, device="cuda")
    with pytest.raises(SnapshotFailed, match=r"list\[1\] lie in a private memory pool.*MemorySaver"):
        offload([torch.ones(10, device="cuda"), inside]).offload()
    del inside


def test_memory_shared_through_cuda_ipc_is_refused(torch: Any, offload: Make) -> None:
    from torch.multiprocessing.reductions import reduce_tensor

    shared = torch.ones(MIB, device="cuda")
    reduced = reduce_tensor(shared)
    with pytest.raises(SnapshotFailed, match=r"shared with another process through CUDA IPC"):
        offload(shared).offload()
    del reduced


def test_memory_of_another_allocator_is_refused(torch: Any, offload: Make) -> None:
    own = torch.ones(MIB, device="cuda")
    borrowed = torch.from_dlpack(own)
    with pytest.raises(SnapshotFailed, match=r"belong to another allocator|overlap"):
        offload(borrowed).offload()
    assert own.sum() == MIB


def test_other_tensors_that_stay_are_told(
    torch: Any, offload: Make, caplog: pytest.LogCaptureFixture
) -> None:
    stays = torch.ones(128 * MIB, device="cuda")
    with caplog.at_level(logging.WARNING, "slicelock"):
        offload(torch.ones(10, device="cuda")).offload()
    assert re.search(r"0\.[56]\d GiB of tensors that TorchOffload was not given stay on cuda:0", caplog.text)
    del stays


ENDING = """
import sys, time, torch
from slicelock.hooks import TorchOffload
hook = TorchOffload(torch.nn.Linear(1 << 15, 1 << 15, device="cuda"))
time.sleep(float(sys.argv[1]))
"""


def test_a_process_may_end_while_memory_is_pinned() -> None:
    delays = [0.05 * number for number in range(8)]
    started = [
        subprocess.Popen([sys.executable, "-c", ENDING, str(delay)], stderr=subprocess.PIPE, text=True)
        for delay in delays
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * len(delays), said
