"""What the driver cannot tell is never taken for what is wished for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slicelock.states import RunState
from tests.support.gpu_rig import SAFE, GpuRig, processes


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[GpuRig]:
    async with GpuRig(tmp_path) as made:
        await made.idle()
        yield made


@pytest.fixture
def three() -> Iterator[list[int]]:
    with processes(3, **SAFE) as pids:
        yield pids


async def a_is_saved(rig: GpuRig, pids: list[int]) -> None:
    rig.has("a", pids)
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert set(rig.world.states(pids)) == {"checkpointed"}


async def test_a_run_is_not_ready_before_it_is_known_where_it_is(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    rig.world.fault(three[1], "state", times=4, code=999)
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.world.states(three) == ["running"] * 3


async def test_nor_with_a_process_that_has_failed(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    rig.world.change(three[1], state="failed")
    assert (await rig.turn("a", 30)).outcome == "FAILED"
    assert not rig.world.log("restore", "unlock")
    assert rig.accelerator._records.read("s", rig.page.stays["a"].image) is not None


async def test_nobody_is_let_go_on_who_is_still_saved(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    subject = rig.switcher.at.subject("a", 20, rig.page.stays["a"].image)
    report = await rig.accelerator.unlock(subject, 1.0)
    assert list(report.failures.values()) == ["its state is checkpointed"] * 3


async def test_a_saved_run_is_looked_at_until_the_driver_can_tell(tmp_path: Path, three: list[int]) -> None:
    async with GpuRig(tmp_path) as rig:
        await a_is_saved(rig, three)
        rig.page.put(replace(rig.page.stays["a"], state=RunState.RESTORING))
    rig.world.fault(three[1], "state", times=8, code=999)
    async with rig:
        rig.registry.pids["a"] = three
        await rig.idle()
        assert rig.states()["a"] == "saved"
        assert (await rig.turn("a", 30)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3
