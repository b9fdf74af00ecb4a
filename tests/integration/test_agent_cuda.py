"""The driver's checkpoint behind the real helper processes, with real processes as pids and a fake driver."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slicelock.errors import AgentError
from tests.support.fake_driver import GIB, state_of
from tests.support.gpu_rig import GPU, QUICK, SAFE, GpuRig, Parent, processes
from tests.support.wait import wait_until, wait_until_async


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_PATIENCE_S", 0.1)


@pytest.fixture
def one() -> Iterator[list[int]]:
    with processes(1) as pids:
        yield pids


@pytest.fixture
def parent() -> Iterator[Parent]:
    made = Parent(**SAFE)
    yield made
    made.close()


async def settled(rig: GpuRig) -> None:
    """Wait until every helper that was ended is gone."""
    await wait_until_async(lambda: len(rig.accelerator.helpers.pids) <= 8)


async def test_runs_change_places(rig: GpuRig, three: list[int]) -> None:
    rig.has("a", three[:2], 30 * GIB, 20 * GIB)
    rig.has("b", three[2:], 60 * GIB)
    rig.world.change(three[2], mem={})  # it has nothing there yet
    assert (await rig.turn("a", 10)).outcome == "READY"
    result = await rig.turn("b", 20)
    assert (result.outcome, result.bytes) == ("READY", 50 * GIB)
    assert rig.states() == {"a": "saved", "b": "loaded"}
    assert rig.world.states(three) == ["checkpointed", "checkpointed", "running"]
    rig.world.change(three[2], mem={GPU: 60 * GIB})
    result = await rig.turn("a", 30)
    assert (result.outcome, result.bytes) == ("READY", 110 * GIB)
    assert rig.world.states(three) == ["running", "running", "checkpointed"]
    assert rig.states() == {"a": "loaded", "b": "saved"}


async def test_all_are_locked_before_any_is_saved_and_restored_before_any_is_unlocked(
    rig: GpuRig, three: list[int]
) -> None:
    rig.has("a", three)
    await rig.turn("a", 10)
    await rig.turn("b", 20)
    await rig.turn("a", 30)
    calls = [op for op, _ in rig.world.log("lock", "save", "restore", "unlock")]
    assert calls == [op for op in ("lock", "save", "restore", "unlock") for _ in three]


async def test_helpers_are_kept(rig: GpuRig, one: list[int]) -> None:
    rig.has("a", one)
    await rig.turn("a", 10)
    for fence in range(20, 60, 20):
        await rig.turn("b", fence)
        await rig.turn("a", fence + 10)
    assert rig.accelerator.helpers.started == 1


async def test_n1_a_lock_that_takes_too_long_is_tried_again_with_nobody_locked_meanwhile(
    rig: GpuRig, three: list[int]
) -> None:
    rig.has("a", three)
    rig.world.fault(three[1], "lock", times=2, code=600)
    await rig.turn("a", 10)
    begun = time.monotonic()
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert time.monotonic() - begun > 3 * QUICK.first_pause
    unlocked = [pid for op, pid in rig.world.log("unlock")]
    assert sorted(unlocked) == sorted([three[0], three[2]] * 2)
    assert rig.world.states(three) == ["checkpointed"] * 3


async def test_a_lock_that_always_takes_too_long_leaves_the_run_running(
    tmp_path: Path, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock_agent.station.DRIVER_PATIENCE_S", 0.3)
    async with GpuRig(tmp_path) as rig:
        rig.has("a", three, 0, 0, 0)
        rig.world.change(three[0], busy_s=60)
        await rig.turn("a", 10)
        result = await rig.turn("b", 20)
        assert (result.outcome, result.what) == ("FAILED", "evict")
        assert "did not end in time (600)" in result.reason
        assert rig.world.states(three) == ["running"] * 3
        assert rig.states() == {"a": "loaded"}


async def test_n2_a_lock_that_hangs_costs_its_helper_and_nothing_else(rig: GpuRig, three: list[int]) -> None:
    rig.has("a", three)
    rig.world.fault(three[1], "lock", hang=3600)
    await rig.turn("a", 10)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    task = asyncio.create_task(tick())
    result = await rig.turn("b", 20)
    task.cancel()
    assert (result.outcome, result.what) == ("FAILED", "evict")
    assert "did not answer in time" in result.reason
    assert ticks > 20  # the agent went on with everything else
    assert rig.world.states(three) == ["running"] * 3
    assert rig.states() == {"a": "loaded"}
    assert (await rig.turn("b", 30)).outcome == "READY"


async def test_n2_siblings_that_hang_while_one_is_locked(rig: GpuRig, three: list[int]) -> None:
    rig.has("a", three)
    for pid in three:
        rig.world.change(pid, group="siblings")
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "FAILED"
    await rig.idle()
    assert rig.world.states(three) == ["running"] * 3
    assert rig.states() == {"a": "loaded"}


async def test_n3_one_that_cannot_be_saved_undoes_the_rest_and_is_not_tried_again(
    rig: GpuRig, three: list[int]
) -> None:
    rig.has("a", three)
    rig.world.fault(three[2], "save", code=801)
    await rig.turn("a", 10)
    result = await rig.turn("b", 20)
    assert (result.outcome, result.what) == ("FAILED", "evict")
    assert "not supported (801)" in result.reason
    assert rig.world.states(three) == ["running"] * 3
    assert rig.states() == {"a": "loaded"}
    locks = len(rig.world.log("lock"))
    assert "not supported (801)" in (await rig.turn("b", 30)).reason
    assert len(rig.world.log("lock")) == locks


async def test_n4_a_failed_process_poisons_its_run(rig: GpuRig, one: list[int]) -> None:
    rig.has("a", one)
    rig.world.fault(one[0], "save", code=999, state="failed")
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "FAILED"
    await rig.idle()
    assert rig.states() == {"a": "poisoned"}
    result = await rig.turn("b", 30)
    assert "can neither be saved nor brought back" in result.reason
    assert rig.states() == {"a": "poisoned"}


async def test_n4_a_poisoned_run_may_be_killed_where_that_is_allowed(rig: GpuRig) -> None:
    with processes(1, SLICELOCK_RUN="a") as [pid]:
        rig.has("a", [pid])
        rig.registry.learn({"a": {"rev": "1", "job": "j", "processes": {}}})
        rig.world.fault(pid, "save", code=999, state="failed")
        await rig.turn("a", 10)
        await rig.turn("b", 20, ways=("cuda",))
        await rig.idle()
        assert (await rig.turn("b", 30, ways=("cuda", "kill"))).outcome == "READY"
        assert rig.world.state(pid) == "gone"
        assert rig.states() == {"b": "loaded"}


async def test_a_run_that_has_a_turn_elsewhere_is_not_killed(rig: GpuRig) -> None:
    with processes(1, SLICELOCK_RUN="a") as [pid]:
        rig.has("a", [pid])
        rig.registry.learn({"a": {"rev": "1", "job": "j", "processes": {}}})
        await rig.turn("a", 10)
        rig.switcher.at = replace(rig.switcher.at, elsewhere=lambda run: "samplers")
        result = await rig.turn("b", 20, ways=("cuda", "kill"))
        assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
        assert result.reason.endswith("evicted: in use on samplers")
        assert rig.world.state(pid) == "running"


async def a_is_saved(rig: GpuRig, pids: list[int], *sizes: int) -> None:
    rig.has("a", pids, *sizes)
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert set(rig.world.states(pids)) == {"checkpointed"}


async def test_n9_a_zombie_between_lock_and_save_is_no_failure(rig: GpuRig, three: list[int]) -> None:
    rig.has("a", three)
    rig.world.fault(three[1], "save", die=True)
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert state_of(three[1]) == "Z"
    assert rig.world.states(three) == ["checkpointed", "gone", "checkpointed"]
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.world.states(three) == ["running", "gone", "running"]


async def test_n10_children_that_appear_are_locked_before_anything_is_saved(
    rig: GpuRig, parent: Parent
) -> None:
    early = parent.child()
    rig.has("a", [parent.pid])
    rig.world.add(early, {GPU: GIB})
    await rig.turn("a", 10)
    late = parent.child()
    rig.world.fault(early, "lock", hang=0.1)
    rig.want("b", 20)
    await wait_until_async(lambda: ("lock", early) in rig.world.log("lock"))
    rig.world.add(late, {GPU: GIB})
    await wait_until_async(lambda: len(rig.results) > 1)
    assert rig.results[-1].outcome == "READY"
    calls = rig.world.log("lock", "save")
    assert [op for op, _ in calls] == ["lock"] * 3 + ["save"] * 3
    assert calls[2] == ("lock", late)


async def test_n10_children_without_end_are_rolled_back(
    rig: GpuRig, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.has("a", [parent.pid])
    await rig.turn("a", 10)
    verbs = rig.accelerator._verbs
    lock = type(verbs).lock

    async def and_one_more(self: object, *arguments: object) -> object:
        rig.world.add(parent.child(), {GPU: GIB})
        return await lock(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(verbs), "lock", and_one_more)
    result = await rig.turn("b", 20)
    assert "new CUDA processes keep appearing" in result.reason
    assert not rig.world.log("save")
    assert set(rig.world.states([parent.pid, *parent.children])) == {"running"}
    assert rig.states() == {"a": "loaded"}


async def test_a_stopped_process_is_not_locked(rig: GpuRig, one: list[int]) -> None:
    rig.has("a", one)
    await rig.turn("a", 10)
    os.kill(one[0], signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{one[0]}/stat").read_text().split()[2] == "T")
    before = rig.world.log("state")
    result = await rig.turn("b", 20)
    assert f"process {one[0]} is stopped" in result.reason
    assert not rig.world.log("lock")
    assert rig.world.log("state") == before
    assert rig.states() == {"a": "loaded"}
    os.kill(one[0], signal.SIGCONT)
    assert (await rig.turn("b", 30)).outcome == "READY"
    os.kill(one[0], signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{one[0]}/stat").read_text().split()[2] == "T")
    assert "is stopped" in (await rig.turn("a", 40)).reason
    assert not rig.world.log("restore")
    assert rig.states()["a"] == "saved"


async def test_n17_a_wrong_state_that_is_the_wanted_one_is_success(rig: GpuRig, one: list[int]) -> None:
    await a_is_saved(rig, one)
    rig.world.fault(one[0], "unlock", code=401, state="running")
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.world.state(one[0]) == "running"


async def test_n17_a_driver_that_cannot_tell_for_a_while(rig: GpuRig, one: list[int]) -> None:
    rig.has("a", one)
    await rig.turn("a", 10)
    rig.world.fault(one[0], "lock", code=999)
    rig.world.fault(one[0], "state", times=3, code=304)
    assert (await rig.turn("b", 20)).outcome == "FAILED"
    await rig.idle()
    assert rig.states() == {"a": "loaded"}
    assert rig.world.state(one[0]) == "running"
    assert (await rig.turn("b", 30)).outcome == "READY"


async def test_a_helper_that_is_killed_is_replaced(rig: GpuRig, one: list[int]) -> None:
    rig.has("a", one)
    await rig.turn("a", 10)
    rig.world.fault(one[0], "save", hang=3600)
    rig.want("b", 20)
    await wait_until_async(lambda: rig.world.log("save"))
    for pid in rig.accelerator.helpers.pids:
        os.kill(pid, signal.SIGKILL)
    await wait_until_async(lambda: len(rig.results) > 1)
    assert rig.results[-1].outcome == "FAILED"
    assert "its helper process has ended" in rig.results[-1].reason
    assert rig.world.state(one[0]) == "running"
    assert (await rig.turn("b", 30)).outcome == "READY"


async def test_what_hung_may_come_to_its_end_all_the_same(
    tmp_path: Path, one: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock_agent.station.DRIVER_PATIENCE_S", 0.3)
    async with GpuRig(tmp_path, patience=replace(QUICK, grace=5.0)) as rig:
        rig.has("a", one, 1000)
        await rig.turn("a", 10)
        rig.world.fault(one[0], "save", hang=3600)
        rig.want("b", 20)
        await wait_until_async(lambda: rig.world.log("save"))
        looks = len(rig.world.log("state"))
        await wait_until_async(lambda: len(rig.world.log("state")) > looks + 2)
        rig.world.change(one[0], state="checkpointed")
        await wait_until_async(lambda: len(rig.results) > 1)
        assert rig.results[-1].outcome == "READY"
        assert rig.states() == {"a": "saved", "b": "loaded"}


async def test_without_a_driver_the_reason_is_one_line(tmp_path: Path, one: list[int]) -> None:
    async with GpuRig(tmp_path, options=()) as rig:
        rig.has("a", one)
        await rig.turn("a", 10)
        result = await rig.turn("b", 20)
        assert (result.outcome, result.what) == ("FAILED", "evict")
        assert "the driver cannot be called" in result.reason
        assert rig.states() == {"a": "loaded"}


async def test_n18_nothing_is_saved_that_cannot_be_written_down(
    rig: GpuRig, three: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.has("a", three)
    await rig.turn("a", 10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rig.accelerator._saved_runs, "write", full)
    result = await rig.turn("b", 20)
    assert "No space left on device" in result.reason
    assert not rig.world.log("save")
    await rig.idle()
    assert rig.world.states(three) == ["running"] * 3
    assert rig.states() == {"a": "loaded"}


async def test_n18_nothing_is_begun_without_the_journal(
    rig: GpuRig, one: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.has("a", one)
    await rig.turn("a", 10)

    def full(*_: object) -> None:
        raise AgentError("the journal cannot be written: disk is full")

    monkeypatch.setattr(rig.page, "_save", full)
    assert "disk is full" in (await rig.turn("b", 20)).reason
    assert not rig.world.log("lock")
    monkeypatch.undo()
    assert (await rig.turn("b", 30)).outcome == "READY"
