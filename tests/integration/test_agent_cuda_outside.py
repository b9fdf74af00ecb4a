"""Processes that were started for a run and have left its tree: not touched, and not overlooked."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from slicelock_agent.backends.cuda import discovery

from tests.support.fake_driver import GIB
from tests.support.gpu_rig import GPU, SAFE, GpuRig, processes
from tests.support.wait import wait_until_async


@pytest.fixture
def two() -> Iterator[list[int]]:
    """A process of run `a`, and one that carries its name and is no child of it."""
    with processes(2, SLICELOCK_RUN="a", **SAFE) as pids:
        yield pids


async def has_daemon(rig: GpuRig, pids: list[int], size: int) -> None:
    """Run `a` is loaded; a daemon that it has started has so much on the GPU."""
    rig.has("a", pids[:1])
    rig.world.add(pids[1], {GPU: size})
    assert (await rig.turn("a", 10)).outcome == "READY"


async def test_a_daemon_of_the_run_keeps_it_where_it_is_and_is_named(rig: GpuRig, two: list[int]) -> None:
    await has_daemon(rig, two, 30 * GIB)
    result = await rig.turn("b", 20)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
    assert f"process {two[1]} (sleep" in result.reason
    assert "was started for the run and has left its processes" in result.reason
    assert not rig.world.log("lock")
    assert rig.states() == {"a": "loaded"}
    os.kill(two[1], signal.SIGKILL)
    await wait_until_async(lambda: rig.world.state(two[1]) == "gone")
    assert (await rig.turn("b", 30)).outcome == "READY"


async def test_one_that_registers_goes_with_its_run(rig: GpuRig, two: list[int]) -> None:
    await has_daemon(rig, two, 30 * GIB)
    rig.registry.pids["a"] = two
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert rig.world.states(two) == ["checkpointed"] * 2


@pytest.mark.parametrize(("left", "outcome"), [(GIB, "READY"), (30 * GIB, "FAILED")])
async def test_after_hooks_it_may_keep_a_context(
    rig: GpuRig, two: list[int], left: int, outcome: str
) -> None:
    rig.registry.hook_runs.add("a")
    rig.hooks.on_offload = lambda run: rig.world.change(two[0], mem={GPU: GIB})
    await has_daemon(rig, two, left)
    result = await rig.turn("b", 20, ways=("hooks",))
    assert result.outcome == outcome
    assert (f"process {two[1]} (sleep" in result.reason) == (outcome == "FAILED")


async def test_a_false_name_by_another_user_moves_and_stops_nothing(
    rig: GpuRig, two: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = discovery.uids_of
    monkeypatch.setattr(discovery, "uids_of", lambda pid: (12345,) * 4 if pid == two[1] else real(pid))
    await has_daemon(rig, two, 30 * GIB)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert rig.world.states(two) == ["checkpointed", "running"]


async def test_processes_of_another_run_are_no_concern_of_this_one(rig: GpuRig, two: list[int]) -> None:
    with processes(1, SLICELOCK_RUN="c") as others:
        rig.has("a", two[:1])
        rig.world.add(others[0], {GPU: 30 * GIB})
        await rig.turn("a", 10)
        assert (await rig.turn("b", 20)).outcome == "READY"
        assert rig.world.state(others[0]) == "running"
