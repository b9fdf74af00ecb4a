"""What a run may leave on a GPU after its hooks, and when it is asleep, with figures from NVML or without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from slicelock_agent.backends.base import Subject, Target

from tests.support.fake_driver import GIB
from tests.support.gpu_rig import GPU, GpuRig, Parent, processes


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[GpuRig]:
    async with GpuRig(tmp_path) as made:
        await made.idle()
        yield made


@pytest.fixture
def parent() -> Iterator[Parent]:
    """A process with sixteen children that use no GPU, such as data loaders."""
    made = Parent()
    for _ in range(16):
        made.child()
    yield made
    made.close()


async def hooked(rig: GpuRig, pid: int, before: int, after: int) -> None:
    """Run `a` is loaded, and its hooks leave `after` bytes."""
    rig.has("a", [pid], before)
    rig.registry.hook_runs.add("a")
    rig.hooks.on_offload = lambda run: rig.world.change(pid, mem={GPU: after})
    await rig.turn("a", 10)


async def test_children_without_a_context_may_keep_nothing(rig: GpuRig, parent: Parent) -> None:
    await hooked(rig, parent.pid, 40 * GIB, 33 * GIB)
    result = await rig.turn("b", 20, ways=("hooks",))
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
    assert f"{33 * GIB} bytes are still in use on {GPU}, {2 * GIB} may be after its hooks" in result.reason
    assert (await rig.turn("b", 30)).outcome == "READY"
    assert rig.world.state(parent.pid) == "checkpointed"


async def test_a_server_with_helpers_is_asleep_only_when_its_memory_is_gone(
    rig: GpuRig, parent: Parent
) -> None:
    rig.has("a", [parent.pid], 17 * GIB)
    server = Subject("a", "s", (GPU,), 1, targets=(Target("x", parent.pid, -1),))
    assert await rig.accelerator.left(server, 4 * GIB)
    rig.world.change(parent.pid, mem={GPU: 5 * GIB})
    assert not await rig.accelerator.left(server, 4 * GIB)


async def test_hooks_that_free_nothing_are_found_out_where_nvml_tells_no_figures(rig: GpuRig) -> None:
    with processes(1) as [pid]:
        rig.has("a", [pid], 10 * GIB)
        rig.registry.hook_runs.add("a")
        rig.world.change(pid, untold=True)
        await rig.turn("a", 10)
        assert (await rig.turn("b", 20)).outcome == "READY"
        assert rig.world.state(pid) == "checkpointed"


async def test_what_sleeping_runs_keep_is_allowed_for_there(rig: GpuRig) -> None:
    with processes(3) as pids:
        for name, pid in zip("abc", pids, strict=True):
            rig.has(name, [pid], 0)
            rig.world.change(pid, untold=True)
        rig.registry.hook_runs.update("abc")
        rig.hooks.on_offload = lambda run: rig.world.change(
            rig.registry.pids[run][0], mem={GPU: 3 * GIB // 2}
        )
        for fence, name in enumerate("abca", 10):
            assert (await rig.turn(name, fence)).outcome == "READY"
            rig.world.change(rig.registry.pids[name][0], mem={GPU: 40 * GIB})
        assert not rig.world.log("save")


async def test_a_save_that_frees_nothing_is_found_out_there_too(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with processes(1) as [pid]:
        rig.has("a", [pid], 10 * GIB)
        rig.world.change(pid, untold=True)
        await rig.turn("a", 10)
        monkeypatch.setattr(type(rig.accelerator._gpus), "memory", lambda self, uuid: (10 * GIB, 70 * GIB))
        result = await rig.turn("b", 20)
        assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
        assert f"{10 * GIB} bytes are still in use on {GPU}" in result.reason
        assert rig.world.state(pid) == "running"
