"""What a switch tells of its steps, and of how busy the devices were. No Redis."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slicelock_agent import clocked
from slicelock_agent.clocked import Steps
from slicelock_agent.result import Result
from slicelock_agent.utilisation import Utilisation

from tests.support.rig import FakeHooks, Rig

A, B = random.Random(1).randbytes(20_000), random.Random(2).randbytes(30_000)


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(clocked, "NOTHING_S", 0.0)
    async with Rig(tmp_path) as made:
        await made.idle()
        yield made


def steps(result: Result) -> list[tuple[str, str, str, int]]:
    return [(one["step"], one["run"], one["way"], one["bytes"]) for one in result.told().get("steps", ())]


async def test_each_step_from_outside_is_told_with_its_bytes(rig: Rig) -> None:
    await rig.turn("a", 10)
    rig.write(A)
    await rig.turn("b", 20)
    rig.write(B)
    result = await rig.turn("a", 30)
    assert steps(result) == [
        ("lock", "b", "sim", 0),
        ("snapshot", "b", "sim", len(B)),
        ("verify", "b", "sim", 0),
        ("restore", "a", "sim", len(A)),
        ("unlock", "a", "sim", 0),
    ]
    assert all(one["seconds"] >= 0 for one in result.steps)
    assert sum(one["bytes"] for one in result.steps) == result.bytes
    assert sum(one["seconds"] for one in result.steps) <= result.seconds


async def test_hooks_offload_and_reload(rig: Rig) -> None:
    rig.registry.hook_runs = {"a"}
    rig.hooks.effect = lambda what: rig.empty() if what == "offloaded" else None
    await rig.turn("a", 10)
    rig.write(A)
    assert ("offload", "a", "hooks", 7) in steps(await rig.turn("b", 20))
    assert ("reload", "a", "hooks", 7) in steps(await rig.turn("a", 30))


async def test_a_switch_that_moves_nothing_has_no_steps(rig: Rig) -> None:
    assert "steps" not in (await rig.turn("a", 10)).told()
    assert "steps" not in (await rig.turn("a", 20)).told()


async def test_a_failed_switch_tells_what_it_has_tried(rig: Rig) -> None:
    rig.registry.hook_runs = {"a"}
    rig.hooks.failures["offload", "a"] = "no"
    await rig.turn("a", 10)
    rig.write(A)
    result = await rig.turn("b", 20, ways=("hooks",))
    assert result.outcome == "FAILED"
    assert [one[0] for one in steps(result)] == ["offload"]


async def test_bytes_that_hooks_do_not_count_are_seen_on_the_devices(rig: Rig) -> None:
    noted = Steps()
    used = iter([100, 40])
    hooks = clocked.hooks(FakeHooks(), noted, lambda: next(used))
    subject = rig.switcher.at.subject("a", 1)
    hooks._backend.failures["offload", "a"] = "no"  # type: ignore[attr-defined]
    await hooks.save(subject, 1.0)
    assert noted.told()[0]["bytes"] == 60


def test_repetitions_are_counted_together() -> None:
    noted = Steps()
    for _ in range(2):
        noted.note("verify", "a", "sim", 0, 0.25)
    noted.note("verify", "b", "sim", 3, 1.0)
    assert [(one["run"], one["bytes"], one["seconds"]) for one in noted.told()] == [
        ("a", 0, 0.5),
        ("b", 3, 1.0),
    ]
    noted.clear()
    assert noted.told() == []


def test_the_mean_of_how_busy_the_devices_were() -> None:
    busy = Utilisation()
    assert busy.taken() is None
    busy.saw({"0": {"busy": 50}, "1": {"busy": 100}, "2": {"busy": None}})
    busy.saw({"0": {"busy": 25}})
    busy.saw({"0": {}})
    assert busy.taken() == 50.0
    assert busy.taken() is None


async def test_a_result_tells_how_busy_the_devices_were(rig: Rig) -> None:
    rig.switcher.saw({"sim:d": {"used": 1, "total": 2, "busy": 80}})
    assert (await rig.turn("a", 10)).told()["busy"] == 80.0
    assert "busy" not in (await rig.turn("a", 20)).told()
