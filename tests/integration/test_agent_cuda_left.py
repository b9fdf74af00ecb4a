"""What a run with hooks may have on GPUs outside its turns, and on those of other slices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slicelock_agent.backends.base import Subject, Target
from slicelock_agent.devices import DeviceLocks

from tests.support.fake_driver import GIB
from tests.support.gpu_rig import GPU, OTHER, SIZE, GpuRig, Parent, processes


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_PATIENCE_S", 0.1)
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_LOOK_S", 0.02)


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


@pytest.mark.parametrize(("left", "outcome"), [(9 * GIB, "READY"), (13 * GIB, "FAILED")])
async def test_ranks_keep_their_communicators(tmp_path: Path, left: int, outcome: str) -> None:
    both = (GPU, OTHER)
    async with GpuRig(tmp_path, devices=both, gpus=dict.fromkeys(both, SIZE)) as rig:
        with processes(2) as ranks:
            rig.has("a", ranks)
            rig.registry.hook_runs.add("a")

            def have(size: int) -> None:
                for rank, uuid in zip(ranks, both, strict=True):
                    rig.world.change(rank, mem={uuid: size})

            have(40 * GIB)
            rig.hooks.on_offload = lambda run: have(left)
            await rig.turn("a", 10)
            result = await rig.turn("b", 20, ways=("hooks",))
            assert result.outcome == outcome
            assert outcome == "READY" or f"{13 * GIB} bytes are still in use on {GPU}" in result.reason


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


# ---------------------------------------------------------------- room to reload


async def test_hooks_reload_only_when_there_is_room_for_what_they_freed(rig: GpuRig) -> None:
    with processes(2) as [pid, hog]:
        await hooked(rig, pid, 40 * GIB, GIB)
        rig.hooks.bytes = 39 * GIB
        await rig.turn("b", 20)
        rig.world.add(hog, {GPU: 50 * GIB})
        result = await rig.turn("a", 30)
        assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
        assert "29.00 GiB free, 39.00 GiB are needed; it is used by process" in result.reason
        assert f"process {hog} (sleep" in result.reason
        assert rig.hooks.calls == [("offload", "a", 20)]
        assert rig.states()["a"] == "saved"
        rig.world.change(hog, mem={GPU: 30 * GIB})  # others beside it are no matter to hooks
        assert (await rig.turn("a", 40)).outcome == "READY"


async def test_a_reload_that_failed_is_repeated_only_with_room(rig: GpuRig) -> None:
    with processes(2) as [pid, hog]:
        await hooked(rig, pid, 40 * GIB, GIB)
        rig.hooks.bytes = 39 * GIB
        await rig.turn("b", 20)
        rig.world.add(hog, {GPU: 10 * GIB})
        rig.hooks.failures["reload", "a"] = "out of memory"
        result = await rig.turn("a", 30)
        assert (result.what, rig.states()["a"]) == ("later", "loaded")
        assert "out of memory; " in result.reason
        assert f"{GPU} is used by process {hog} (sleep" in result.reason
        rig.hooks.failures.clear()
        rig.world.change(hog, mem={GPU: 50 * GIB})
        assert "waits for room" in (await rig.turn("a", 40)).reason
        rig.world.change(pid, mem={GPU: 12 * GIB})  # what one of its processes has reloaded needs no room
        assert (await rig.turn("a", 50)).what == "later"
        rig.world.change(hog, mem={GPU: 40 * GIB})
        assert (await rig.turn("a", 60)).outcome == "READY"


async def test_hooks_that_could_not_free_the_gpu_need_no_room(rig: GpuRig) -> None:
    with processes(1) as [pid]:
        await hooked(rig, pid, 70 * GIB, GIB)
        rig.hooks.bytes = 69 * GIB
        await rig.turn("b", 20)
        full = {GPU: 70 * GIB}
        rig.hooks.effect = lambda what: rig.world.change(pid, mem=full) if what == "reloaded" else None
        await rig.turn("a", 30)
        rig.hooks.failures["offload", "a"] = "it does not want to"
        assert (await rig.turn("b", 40, ways=("hooks",))).what == "evict"
        assert (await rig.turn("a", 50)).outcome == "READY"
        assert rig.hooks.calls[-1] == ("reload", "a", 50)


# ---------------------------------------------------------------- GPUs of other slices


@pytest.fixture
async def two_gpus(tmp_path: Path) -> AsyncIterator[tuple[GpuRig, str]]:
    """A rig, and a second GPU that another slice of this machine has."""
    second = f"GPU-{tmp_path.name}"  # its lock file is in a folder that all tests share
    async with GpuRig(tmp_path, gpus={GPU: SIZE, second: SIZE}) as rig:
        locks = DeviceLocks()
        locks.take(rig.accelerator, [second], "pool p, slice samplers")
        rig.switcher.at = replace(rig.switcher.at, slices={"s": (GPU,), "samplers": (second,)})
        yield rig, second
        locks.close()
        rig.accelerator.lock_file(second).unlink()


@pytest.mark.parametrize("contended", [True, False])
async def test_a_run_that_shows_in_its_turn_that_it_uses_such_a_gpu_does_not_come_back(
    two_gpus: tuple[GpuRig, str], contended: bool
) -> None:
    rig, second = two_gpus
    with processes(1) as [pid]:
        await hooked(rig, pid, 0, 0)
        sizes = {"offloaded": GIB, "reloaded": 30 * GIB}
        rig.hooks.on_offload = lambda run: None
        rig.hooks.effect = lambda what: what in sizes and rig.world.change(pid, mem={second: sizes[what]})
        rig.hooks.effect("reloaded")
        if contended:
            assert (await rig.turn("b", 20)).outcome == "READY"
        result = await rig.turn("a", 30)
        assert (result.outcome, result.what, result.run) == ("FAILED", "refused", "a")
        words = f"process {pid} uses GPU 1 ({second}), which is not of slice s; start it with CUDA_VISIBLE_"
        assert result.reason.startswith(words)
        assert (await rig.turn("b", 40)).outcome == "READY"
        sizes["reloaded"] = GIB  # a context may be there by mistake, and is no reason to end a run
        assert (await rig.turn("a", 50)).outcome == "READY"


async def test_a_run_that_takes_part_in_the_other_slice_comes_back(
    two_gpus: tuple[GpuRig, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, second = two_gpus
    with processes(1) as [pid]:
        await hooked(rig, pid, 10 * GIB, GIB)
        rig.world.change(pid, mem={GPU: 10 * GIB, second: 30 * GIB})
        found = rig.registry.processes
        monkeypatch.setattr(
            rig.registry,
            "processes",
            lambda run: [replace(one, slices=("s", "samplers")) for one in found(run)],
        )
        assert (await rig.turn("a", 20)).outcome == "READY"


@pytest.mark.parametrize("ways", [("hooks", "cuda"), ("hooks",), ("kill",)])
async def test_a_run_on_a_gpu_of_another_slice_needs_hooks_for_that_one(
    tmp_path: Path, ways: tuple[str, ...]
) -> None:
    second = f"GPU-{tmp_path.name}"  # its lock file is in a folder that all tests share
    async with GpuRig(tmp_path, gpus={GPU: SIZE, second: SIZE}) as rig:
        with processes(1) as [pid]:
            await hooked(rig, pid, 10 * GIB, GIB)
            rig.page.drop("a")
            rig.world.change(pid, mem={second: 30 * GIB})
            assert (await rig.turn("a", 20, ways=ways)).outcome == "READY"  # no slice has that GPU
            rig.page.drop("a")
            locks = DeviceLocks()
            locks.take(rig.accelerator, [second], "pool p, slice samplers")
            try:
                result = await rig.turn("a", 30, ways=ways)
                assert (result.outcome, result.what, result.run) == ("FAILED", "refused", "a")
                assert f"process {pid} uses GPU 1 ({second}), which is not of slice s" in result.reason
                assert rig.states() == {}
                rig.switcher.at = replace(rig.switcher.at, slices={"s": (GPU,), "samplers": (second,)})
                assert (await rig.turn("a", 40, ways=ways)).outcome == "READY"
            finally:
                locks.close()
                rig.accelerator.lock_file(second).unlink()
