"""An agent whose journal is gone: what was locked or saved is noticed before a run is let in."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_driver import GIB
from tests.support.gpu_rig import GPU, GpuRig
from tests.support.wait import wait_until_async


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_PATIENCE_S", 0.1)


@asynccontextmanager
async def anew(folder: Path, pids: list[int], *states: str) -> AsyncIterator[GpuRig]:
    """An agent that knows nothing, and run `a` with its processes in these states."""
    async with GpuRig(folder) as rig:
        await rig.idle()
        rig.has("a", pids)
        for pid, state in zip(pids, states, strict=True):
            rig.world.change(pid, state=state)
        yield rig


async def test_a_saved_run_is_restored(tmp_path: Path, three: list[int]) -> None:
    async with GpuRig(tmp_path) as rig:
        rig.has("a", three)
        await rig.turn("a", 10)
        await rig.turn("b", 20)
        assert rig.world.states(three) == ["checkpointed"] * 3
    shutil.rmtree(tmp_path / "state")
    async with rig:
        await rig.idle()
        rig.registry.pids["a"] = three
        assert (await rig.turn("a", 30)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3
        assert rig.states() == {"a": "loaded"}
        assert (await rig.turn("b", 40)).outcome == "READY"
        assert rig.world.states(three) == ["checkpointed"] * 3


async def test_but_only_onto_an_empty_gpu(tmp_path: Path, three: list[int]) -> None:
    saved, other = three[:2]
    async with anew(tmp_path, [saved], "checkpointed") as rig:
        rig.world.add(other, {GPU: GIB})
        result = await rig.turn("a", 10)
        assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
        assert f"it is not known how much memory it needs, and process {other} (sleep" in result.reason
        assert not rig.world.log("restore")
        os.kill(other, signal.SIGKILL)
        await wait_until_async(lambda: rig.world.state(other) == "gone")
        assert (await rig.turn("a", 20)).outcome == "READY"
        assert rig.world.state(saved) == "running"


async def test_a_locked_run_goes_on(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, "locked", "running", "locked") as rig:
        assert (await rig.turn("a", 10)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3
        assert not rig.world.log("save", "restore")


async def test_a_save_that_was_cut_short_is_finished_and_restored(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, "checkpointed", "locked", "locked") as rig:
        assert (await rig.turn("a", 10)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3
        calls = [op for op, _ in rig.world.log("save", "restore", "unlock")]
        assert calls == ["save"] * 2 + ["restore"] * 3 + ["unlock"] * 3


async def test_a_run_that_cannot_be_looked_at_waits(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, "running", "checkpointed", "running") as rig:
        rig.world.fault(three[1], "state", times=3, code=999)
        result = await rig.turn("a", 10)
        assert (result.outcome, result.what) == ("FAILED", "later")
        assert "run a cannot be let in yet: the driver does not tell whether it is saved" in result.reason
        assert rig.states() == {}
        assert (await rig.turn("a", 20)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3


async def test_a_failed_process_is_told(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, "running", "failed", "running") as rig:
        result = await rig.turn("a", 10)
        assert (result.outcome, result.what) == ("FAILED", "refused")
        assert "poisoned" in result.reason


async def test_what_another_slice_has_saved_is_its_own(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three[:1], "checkpointed") as rig:
        rig.registry.hook_runs.add("a")
        rig.registry.offloaded = lambda run, name: True
        rig.switcher.at = replace(rig.switcher.at, moved_elsewhere=lambda run: True)
        assert (await rig.turn("a", 10)).outcome == "READY"
        assert rig.world.state(three[0]) == "checkpointed"
        assert not rig.world.log()
        assert not rig.hooks.calls


@pytest.mark.parametrize("options", [(), ("--driver", "tests.support.nothing:Driver")])
async def test_without_a_driver_nothing_can_have_been_saved(
    tmp_path: Path, three: list[int], options: tuple[str, ...]
) -> None:
    async with GpuRig(tmp_path, options=options) as rig:
        rig.has("a", three)
        rig.registry.hook_runs.add("a")
        assert (await rig.turn("a", 10)).outcome == "READY"


async def test_where_the_driver_cannot_save_it_is_not_asked(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, *["running"] * 3) as rig:
        rig.world.ill(GPU, persistence=False)
        rig.registry.hook_runs.add("a")
        assert (await rig.turn("a", 10)).outcome == "READY"
        assert not rig.world.log()


async def test_hooks_that_were_told_to_offload_are_told_to_reload(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, *["running"] * 3) as rig:
        rig.registry.hook_runs.add("a")
        rig.registry.offloaded = lambda run, name: run == "a"
        assert (await rig.turn("a", 10)).outcome == "READY"
        assert rig.hooks.calls == [("reload", "a", 10)]


async def test_also_after_the_driver_has_saved_what_they_left(tmp_path: Path, three: list[int]) -> None:
    async with anew(tmp_path, three, *["checkpointed"] * 3) as rig:
        rig.registry.hook_runs.add("a")
        rig.registry.offloaded = lambda run, name: run == "a"
        assert (await rig.turn("a", 10)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3
        assert rig.hooks.calls == [("reload", "a", 10)]
