"""N13: host memory and control groups refuse before anything is locked; over a fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from slicelock_agent.host_budget import HostBudget

from tests.support.control_groups import ControlGroups
from tests.support.fake_driver import GIB
from tests.support.gpu_rig import GpuRig, processes
from tests.support.rig import Rig


@pytest.fixture
def one() -> Iterator[list[int]]:
    with processes(1) as pids:
        yield pids


@pytest.fixture(params=[1, 2])
def groups(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlGroups:
    """This machine's control groups, of either version; the agent is in one of its own."""
    made = ControlGroups(tmp_path, request.param)
    made.are_this_machines(monkeypatch)
    made.has("/agent", "self")
    return made


async def test_n13_too_little_host_memory_is_told_before_the_lock(tmp_path: Path, one: list[int]) -> None:
    async with GpuRig(tmp_path, budget=HostBudget(lambda: (64 * GIB, 50 * GIB))) as rig:
        await rig.turn("a", 10)
        rig.has("a", one, 45 * GIB)
        result = await rig.turn("b", 20)
        assert "host memory does not suffice: 47.25 GiB are needed" in result.reason
        assert not rig.world.log("lock")
        assert rig.states() == {"a": "loaded"}


async def test_n13_so_is_the_third_run_for_which_there_is_no_room_beside_those_that_are_saved(
    tmp_path: Path, three: list[int]
) -> None:
    def machine() -> tuple[int, int]:
        with rig.world.open() as world:
            return 128 * GIB, 110 * GIB - sum(proc["saved"] for proc in world["procs"].values())

    async with GpuRig(tmp_path, budget=HostBudget(machine)) as rig:
        for fence, (run, pid) in enumerate(zip("abc", three, strict=True), 10):
            await rig.turn(run, fence)
            rig.has(run, [pid], 40 * GIB)
        assert rig.states() == {"a": "saved", "b": "saved", "c": "loaded"}
        result = await rig.turn("a", 20)
        assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "c")
        assert "42.00 GiB are needed, 17.20 GiB can be given" in result.reason
        assert ("lock", three[2]) not in rig.world.log("lock")
        assert rig.world.states(three) == ["checkpointed", "checkpointed", "running"]
        assert (await rig.turn("c", 30)).outcome == "READY"


async def test_n13_so_is_a_control_group_without_room(
    rig: GpuRig, one: list[int], groups: ControlGroups
) -> None:
    groups.has("/jobs/a", *one)
    limited = groups.limit("/jobs", 16 * GIB, 8 * GIB)
    await rig.turn("a", 10)
    rig.has("a", one, 10 * GIB)
    result = await rig.turn("b", 20)
    assert f"the memory limit of {limited} leaves 8.00 GiB, 10.50 GiB are needed; raise it" in result.reason
    assert not rig.world.log("lock")
    assert rig.states() == {"a": "loaded"}


async def test_n13_the_agents_own_control_group_holds_nothing_of_what_the_driver_saves(
    rig: GpuRig, one: list[int], groups: ControlGroups
) -> None:
    groups.has("/jobs/a", *one)
    groups.limit("/agent", GIB, GIB // 2)
    groups.limit("/jobs/a", 16 * GIB)
    rig.has("a", one, 10 * GIB)
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert rig.world.state(one[0]) == "checkpointed"


async def test_n13_a_run_that_could_never_be_saved_is_refused_at_its_first_turn(
    tmp_path: Path, one: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ControlGroups(tmp_path)
    groups.are_this_machines(monkeypatch)
    async with GpuRig(tmp_path, budget=HostBudget(lambda: (64 * GIB, 20 * GIB))) as rig:
        rig.has("a", one, 45 * GIB)
        result = await rig.turn("a", 10)
        assert (result.outcome, result.what, result.run) == ("FAILED", "refused", "a")
        assert result.reason.startswith(
            "it could not be evicted from here: host memory does not suffice: 47.25 GiB"
        )
        assert "give the node more memory, or the run hooks" in result.reason
        rig.has("a", one, 10 * GIB)
        groups.has("/a", *one)
        groups.limit("/a", 9 * GIB)
        result = await rig.turn("a", 20)
        assert result.reason.startswith("it could not be evicted from here: the memory limit of")
        assert "raise it, or give the run hooks" in result.reason
        groups.limit("/a", 11 * GIB)
        assert (await rig.turn("a", 30)).outcome == "READY"


async def test_n13_what_is_not_known_to_be_a_new_runs_own_does_not_count_against_it(
    tmp_path: Path, one: list[int]
) -> None:
    async with GpuRig(tmp_path, budget=HostBudget(lambda: (64 * GIB, 20 * GIB))) as rig:
        rig.has("a", one, 45 * GIB)
        rig.world.change(one[0], untold=True)
        assert (await rig.turn("a", 10)).outcome == "READY"


async def test_n13_what_the_agent_saves_itself_counts_in_its_own_control_group(
    tmp_path: Path, groups: ControlGroups
) -> None:
    groups.limit("/agent", GIB, GIB - 1)
    async with Rig(tmp_path, budget=HostBudget(lambda: (64 * GIB, 60 * GIB))) as rig:
        await rig.turn("a", 10)
        rig.write(b"state of a")
        assert "raise it, or give the run hooks" in (await rig.turn("b", 20)).reason
        assert rig.states() == {"a": "loaded"}
        groups.limit("/agent", GIB)
        assert (await rig.turn("b", 30)).outcome == "READY"
