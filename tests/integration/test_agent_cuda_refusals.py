"""Runs that could never be saved are refused before their first turn; over real helpers, a fake driver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from slicelock_agent.processes import Found, Presence
from slicelock_agent.registry import Run, RunProcess

from slicelock.identity import ProcessIdentity
from tests.support.fake_driver import GIB
from tests.support.gpu_rig import GPU, OTHER, SIZE, GpuRig, processes
from tests.support.wait import wait_until


@pytest.fixture
def one() -> Iterator[list[int]]:
    with processes(1) as pids:
        yield pids


async def refused(rig: GpuRig, words: str, **facts: Any) -> None:
    """Run `a` is refused before its first turn; nothing is locked, and nothing of it is remembered."""
    result = await rig.turn("a", 10, **facts)
    assert (result.outcome, result.what, result.run) == ("FAILED", "refused", "a")
    assert words in result.reason
    assert not rig.world.log("lock")
    assert rig.states() == {}


@pytest.mark.parametrize(
    ("health", "words"),
    [
        ({"driver": "550.54.15"}, "driver 550.54.15 cannot save processes yet; install 580"),
        ({"mig": True}, "MIG"),
        ({"mps": True}, "MPS"),
        ({"vgpu": True}, "is a vGPU, which cannot be saved; use a whole GPU"),
        ({"persistence": False}, "nvidia-smi -pm 1"),
    ],
)
async def test_a_gpu_that_cannot_save_is_told_at_the_first_acquire(
    rig: GpuRig, one: list[int], health: dict[str, Any], words: str
) -> None:
    rig.world.ill(GPU, **health)
    rig.has("a", one)
    await refused(rig, words)


async def test_hooks_work_on_such_a_gpu(rig: GpuRig, one: list[int]) -> None:
    rig.world.ill(GPU, driver="550.54.15")
    rig.has("a", one, GIB)
    rig.registry.hook_runs.add("a")
    assert (await rig.turn("a", 10)).outcome == "READY"
    assert (await rig.turn("b", 20)).outcome == "READY"


async def test_several_processes_need_the_safe_settings(rig: GpuRig) -> None:
    with processes(2, NCCL_P2P_DISABLE="1") as pids:
        rig.has("a", pids)
        await refused(rig, "without NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0. Start it with these")


async def test_or_say_that_they_have_no_nccl_group(rig: GpuRig) -> None:
    with processes(2, SLICELOCK_NO_NCCL="1") as pids:
        rig.has("a", pids)
        await rig.turn("a", 10)
        assert (await rig.turn("b", 20)).outcome == "READY"
        assert rig.world.states(pids) == ["checkpointed"] * 2


async def test_children_that_use_cuda_need_them_too(rig: GpuRig) -> None:
    with processes(2) as pids:
        rig.has("a", pids[:1])
        await rig.turn("a", 10)
        rig.has("a", pids)
        assert "without NCCL_P2P_DISABLE=1" in (await rig.turn("b", 20)).reason
        assert not rig.world.log("lock")


async def test_hooks_that_the_slice_does_not_use_do_not_help(rig: GpuRig) -> None:
    with processes(2) as pids:
        rig.has("a", pids)
        rig.registry.hook_runs.add("a")
        await refused(rig, "without NCCL_P2P_DISABLE=1", ways=("cuda",))


async def test_clients_of_mps_are_refused(rig: GpuRig) -> None:
    with processes(1, CUDA_MPS_PIPE_DIRECTORY="/tmp/mps") as pids:
        rig.has("a", pids)
        await refused(rig, "is a client of MPS")


async def test_so_are_those_that_will_find_mps_where_it_usually_is(
    rig: GpuRig, one: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock_agent.backends.cuda.preflight.MPS_FOLDER", str(tmp_path / "mps")[1:])
    (tmp_path / "mps").mkdir()
    rig.has("a", one)
    assert (await rig.turn("a", 5)).outcome == "READY"  # nobody serves there any more
    rig.page.drop("a")
    daemon = tmp_path / "nvidia-cuda-mps-control"
    daemon.symlink_to(str(which("sleep")))
    with subprocess.Popen([daemon, "600"]) as running:
        try:
            wait_until(lambda: Path(f"/proc/{running.pid}/comm").read_text() == "nvidia-cuda-mps\n")
            await refused(rig, "will be a client of MPS, which cannot be saved; stop it (echo quit")
        finally:
            running.kill()


@pytest.mark.parametrize(
    ("presence", "words"),
    [
        (Presence.UNSEEN, "another pid namespace), hooks or not; run the agent in the machine's own"),
        (Presence.DENIED, "hooks or not; name that user in SLICELOCK_ALLOW_UIDS"),
    ],
)
async def test_processes_that_cannot_be_reached_are_told(rig: GpuRig, presence: Presence, words: str) -> None:
    hidden = RunProcess(ProcessIdentity("b", 1, 77, 1), Found(presence))
    rig.registry.runs["a"] = Run("a", processes={"b:1:77:1": hidden})
    await refused(rig, f"its process 77 {'cannot' if presence is Presence.UNSEEN else 'is'}")
    rig.registry.hook_runs.add("a")
    assert (await rig.turn("a", 20)).outcome == "READY"
    rig.registry.hook_runs.clear()
    reason = (await rig.turn("b", 30)).reason
    assert words in reason
    assert "give the run hooks" not in reason
    assert rig.states() == {"a": "loaded"}


async def test_a_process_on_a_gpu_of_another_slice_is_refused(tmp_path: Path, one: list[int]) -> None:
    async with GpuRig(tmp_path, gpus={GPU: SIZE, OTHER: SIZE}) as rig:
        rig.has("a", one)
        rig.world.change(one[0], mem={OTHER: GIB})
        await refused(rig, f"uses GPU 1 ({OTHER}), which is not of slice s")
