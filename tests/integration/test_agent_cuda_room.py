"""Room for a saved run, refusals, hooks with the driver: over real helpers and processes, a fake driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slicelock_agent.reconcile import Wanted

from slicelock.errors import BackendUnavailable, SlicelockError
from tests.support.fake_driver import GIB, FakeGpus
from tests.support.gpu_rig import GPU, OTHER, SIZE, GpuRig, processes
from tests.support.wait import wait_until_async


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_PATIENCE_S", 0.1)
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_LOOK_S", 0.02)


@pytest.fixture
def one() -> Iterator[list[int]]:
    with processes(1) as pids:
        yield pids


async def a_is_saved(rig: GpuRig, pids: list[int], *sizes: int) -> None:
    rig.has("a", pids, *sizes)
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert set(rig.world.states(pids)) == {"checkpointed"}


async def test_n5_without_room_nothing_is_restored_until_there_is(rig: GpuRig, three: list[int]) -> None:
    pid, hog = three[:2]
    await a_is_saved(rig, [pid], 40 * GIB)
    rig.world.add(hog, {GPU: 50 * GIB})
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    assert f"process {hog} (sleep, control group" in result.reason
    assert "30.00 GiB free" in result.reason
    assert rig.states()["a"] == "saved"
    assert not rig.world.log("restore")
    os.kill(hog, signal.SIGKILL)
    await wait_until_async(lambda: rig.world.state(hog) == "gone")
    assert (await rig.turn("a", 40)).outcome == "READY"
    assert rig.world.state(pid) == "running"


async def test_n5_a_foreign_process_keeps_a_run_saved_even_if_both_fit(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three[:1], 10 * GIB)
    rig.world.add(three[1], {GPU: 1 * GIB})
    result = await rig.turn("a", 30)
    assert f"{GPU} is used by process {three[1]} (sleep" in result.reason
    assert not rig.world.log("restore")


async def test_n5_pids_of_the_machine_in_a_container_hide_nobodys_memory(
    rig: GpuRig, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def users(gpus: FakeGpus, uuid: str) -> dict[int, int | None]:
        return {pid + (1 << 24): size for pid, size in told(gpus, uuid).items()}

    told = FakeGpus.users
    monkeypatch.setattr(FakeGpus, "users", users)
    monkeypatch.setattr(rig.accelerator._memory, "_sees_all", False)
    pid, hog = three[:2]
    await a_is_saved(rig, [pid], 40 * GIB)
    rig.world.add(hog, {GPU: 50 * GIB})
    result = await rig.turn("a", 30)
    assert "30.00 GiB free, 41.00 GiB are needed" in result.reason
    assert not rig.world.log("restore")
    os.kill(hog, signal.SIGKILL)
    await wait_until_async(lambda: rig.world.state(hog) == "gone")
    assert (await rig.turn("a", 40)).outcome == "READY"
    assert rig.world.state(pid) == "running"


async def test_a_run_that_filled_the_device_fits_again(rig: GpuRig, one: list[int]) -> None:
    await a_is_saved(rig, one, 80 * GIB)
    assert (await rig.turn("a", 30)).outcome == "READY"


async def test_n6_memory_that_vanishes_between_look_and_restore_loses_the_run_at_once(
    rig: GpuRig, three: list[int]
) -> None:
    pid, hog = three[:2]
    await a_is_saved(rig, [pid], 40 * GIB)
    rig.world.add(hog, {})
    rig.world.fault(pid, "restore", hog=(hog, {GPU: 60 * GIB}))
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "restore", "a")
    assert "out of memory (2)" in result.reason
    assert rig.world.log("restore") == [("restore", pid)]
    assert not rig.world.log("unlock")
    assert rig.states()["a"] == "lost"
    assert (await rig.turn("b", 40)).outcome == "READY"


async def test_n7_when_one_cannot_be_restored_the_others_are_saved_again(
    rig: GpuRig, three: list[int]
) -> None:
    await a_is_saved(rig, three)
    rig.world.fault(three[2], "restore", times=1, code=1)
    result = await rig.turn("a", 30)
    assert result.outcome == "READY"  # the one repetition
    assert rig.world.states(three) == ["running"] * 3
    assert [pid for _, pid in rig.world.log("save")].count(three[0]) == 2


async def test_n7_twice_is_too_often(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    rig.world.fault(three[2], "restore", times=9, code=1)
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    assert rig.states()["a"] == "saved"
    tries = [pid for _, pid in rig.world.log("restore") if pid == three[2]]
    assert len(tries) == 4  # two while b was leaving, two when it had left
    assert rig.world.states(three) == ["checkpointed"] * 3
    assert (await rig.turn("b", 40)).outcome == "READY"


async def test_a_device_that_is_not_there_is_named(rig: GpuRig) -> None:
    assert rig.accelerator.resolve(["all"]) == (GPU,)
    assert rig.accelerator.resolve(["0"]) == (GPU,)
    for name in ("1", "GPU-zzzz"):
        with pytest.raises(SlicelockError, match=f"There is no GPU {name} here.*0 .{GPU}"):
            rig.accelerator.resolve([name])
    with pytest.raises(SlicelockError, match="is named twice"):
        rig.accelerator.resolve(["0", GPU])
    with pytest.raises(SlicelockError, match="MIG"):
        rig.accelerator.resolve(["MIG-1"])


# ---------------------------------------------------------------- both fit


async def test_a_run_comes_back_while_the_other_is_still_being_saved(rig: GpuRig, three: list[int]) -> None:
    a, b = three[:2]
    await a_is_saved(rig, [a], 10 * GIB)
    rig.has("b", [b], 30 * GIB)
    rig.world.fault(b, "save", hang=0.3)
    rig.want("a", 30)
    await wait_until_async(lambda: rig.world.state(a) == "locked")
    assert rig.world.state(b) == "locked"
    await wait_until_async(lambda: len(rig.results) == 3)
    assert (rig.results[-1].outcome, rig.results[-1].bytes) == ("READY", 40 * GIB)
    assert rig.world.states([a, b]) == ["running", "checkpointed"]
    order = [call for call in rig.world.log() if call in (("save", b), ("unlock", a))]
    assert order == [("save", b), ("unlock", a)]


async def test_a_run_that_came_back_early_leaves_again_if_the_other_cannot(
    rig: GpuRig, three: list[int]
) -> None:
    a, b = three[:2]
    await a_is_saved(rig, [a], 10 * GIB)
    rig.has("b", [b], 30 * GIB)
    rig.world.fault(b, "save", code=999)
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "b")
    assert rig.world.states([a, b]) == ["checkpointed", "running"]
    assert rig.states() == {"a": "saved", "b": "loaded"}
    assert (await rig.turn("a", 40)).outcome == "READY"


async def a_reloads_while_it_is_saved(rig: GpuRig, pid: int) -> None:
    """Run `a` gets its third turn: its hooks are told while the other's process is still being saved."""
    rig.world.fault(pid, "save", hang=0.3)
    rig.want("a", 30)
    await wait_until_async(lambda: rig.world.state(pid) == "locked")
    assert ("reload", "a", 30) in rig.hooks.calls
    await wait_until_async(lambda: len(rig.results) == 3)
    assert rig.results[-1].outcome == "READY"


async def test_a_run_with_hooks_reloads_while_the_other_is_still_being_saved(
    rig: GpuRig, three: list[int]
) -> None:
    a, b = three[:2]
    rig.has("a", [a], 10 * GIB)
    rig.registry.hook_runs.add("a")
    rig.hooks.on_offload = lambda run: rig.world.change(a, mem={GPU: GIB})
    await rig.turn("a", 10)
    await rig.turn("b", 20)
    rig.has("b", [b], 30 * GIB)
    await a_reloads_while_it_is_saved(rig, b)
    assert [what for what, *_ in rig.hooks.calls] == ["offload", "reload"]


async def test_so_does_one_on_two_gpus_if_it_fits_on_each(tmp_path: Path, three: list[int]) -> None:
    a, b = three[:2]
    both = (GPU, OTHER)
    async with GpuRig(tmp_path, devices=both, gpus=dict.fromkeys(both, SIZE)) as rig:
        rig.has("a", [a])
        rig.world.change(a, mem=dict.fromkeys(both, 40 * GIB))
        rig.registry.hook_runs.add("a")
        rig.hooks.bytes, rig.hooks.on_offload = 80 * GIB, lambda run: rig.world.change(a, mem={})
        await rig.turn("a", 10)
        await rig.turn("b", 20)
        rig.has("b", [b])
        rig.world.change(b, mem=dict.fromkeys(both, 10 * GIB))
        await a_reloads_while_it_is_saved(rig, b)


# ---------------------------------------------------------------- hooks, then the driver


async def hooked(rig: GpuRig, pid: int, before: int, after: int) -> None:
    """Run `a` is loaded, and its hooks leave `after` bytes."""
    rig.has("a", [pid], before)
    rig.registry.hook_runs.add("a")
    rig.hooks.on_offload = lambda run: rig.world.change(pid, mem={GPU: after})
    await rig.turn("a", 10)


async def test_after_hooks_a_context_may_stay(rig: GpuRig, one: list[int]) -> None:
    await hooked(rig, one[0], 40 * GIB, GIB)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert not rig.world.log("lock")
    assert rig.states() == {"a": "saved", "b": "loaded"}
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.hooks.calls[-1] == ("reload", "a", 30)


async def test_what_hooks_leave_beyond_that_is_saved_by_the_driver(rig: GpuRig, one: list[int]) -> None:
    await hooked(rig, one[0], 40 * GIB, 20 * GIB)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert rig.world.state(one[0]) == "checkpointed"
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.world.state(one[0]) == "running"
    assert rig.hooks.calls[-1] == ("reload", "a", 30)


async def test_nothing_stays_where_a_slice_asks_for_that(rig: GpuRig, one: list[int]) -> None:
    await hooked(rig, one[0], 40 * GIB, GIB)
    assert (await rig.turn("b", 20, zero_residue=True)).outcome == "READY"
    assert rig.hooks.calls == [("offload", "a", 20)]
    assert rig.world.state(one[0]) == "checkpointed"
    assert (await rig.turn("a", 30, zero_residue=True)).outcome == "READY"
    assert rig.hooks.calls[-1] == ("reload", "a", 30)
    assert [op for op, _ in rig.world.log("restore", "unlock")] == ["restore", "unlock"]


async def test_a_rest_that_cannot_be_saved_undoes_the_hooks(rig: GpuRig, one: list[int]) -> None:
    await hooked(rig, one[0], 40 * GIB, GIB)
    rig.world.fault(one[0], "save", code=801)
    result = await rig.turn("b", 20, zero_residue=True)
    assert (result.outcome, result.what) == ("FAILED", "evict")
    assert len(rig.world.log("save")) == 1
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.hooks.calls[-1] == ("reload", "a", 30)


# ---------------------------------------------------------------- first turns, and GPUs of others


async def test_a_first_turn_waits_for_free_memory(rig: GpuRig, three: list[int]) -> None:
    rig.world.add(three[0], {GPU: 50 * GIB})
    result = await rig.turn("a", 10, min_free=40 * GIB)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    assert "30.00 GiB free, 41.00 GiB are needed" not in result.reason
    assert f"process {three[0]}" in result.reason
    rig.world.change(three[0], mem={GPU: 20 * GIB})
    assert (await rig.turn("a", 20, min_free=40 * GIB)).outcome == "READY"
    rig.world.change(three[0], mem={GPU: 60 * GIB})
    assert (await rig.turn("a", 30, min_free=40 * GIB)).outcome == "READY"  # its first turn is over


async def test_a_slices_settings_say_so() -> None:
    raw = {"state": "switching", "settings": {"min_free": GIB, "zero_residue": True, "fallback": "hooks"}}
    wanted = Wanted.of(raw)
    assert (wanted.min_free, wanted.zero_residue, wanted.ways) == (GIB, True, ("hooks",))
    assert (Wanted.of({}).min_free, Wanted.of({}).zero_residue) == (None, None)


async def test_a_gpu_of_another_slice_that_does_not_answer_keeps_nobody_from_being_saved(
    tmp_path: Path, one: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def users(gpus: FakeGpus, uuid: str) -> dict[int, int | None]:
        if uuid == OTHER:
            raise BackendUnavailable(f"{uuid} does not answer: GPU is lost.")
        return told(gpus, uuid)

    told = FakeGpus.users
    monkeypatch.setattr(FakeGpus, "users", users)
    async with GpuRig(tmp_path, gpus={GPU: SIZE, OTHER: SIZE}) as rig:
        await a_is_saved(rig, one, 10 * GIB)


async def test_a_process_that_has_a_turn_elsewhere_is_left_alone(rig: GpuRig, one: list[int]) -> None:
    rig.has("a", one)
    await rig.turn("a", 10)
    rig.switcher.at = replace(rig.switcher.at, elsewhere=lambda run: "samplers")
    result = await rig.turn("b", 20)
    assert result.reason.endswith("in use on samplers")
    assert not rig.world.log("lock")


async def test_memory_that_nvml_does_not_tell_is_saved_all_the_same(rig: GpuRig, one: list[int]) -> None:
    await a_is_saved(rig, one, 10 * GIB)
    await rig.turn("a", 30)
    rig.world.change(one[0], untold=True)
    assert (await rig.turn("b", 40)).bytes == 10 * GIB
    assert rig.world.state(one[0]) == "checkpointed"
