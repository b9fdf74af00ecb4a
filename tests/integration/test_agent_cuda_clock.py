"""Steps of the node's clock while the driver is at work: deadlines are the monotonic clock's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.gpu_rig import QUICK, GpuRig
from tests.support.wait import wait_until_async

HOUR = 3600


class Clock:
    """The node's wall clock, which can be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._true, self.step = time.time, 0
        monkeypatch.setattr(time, "time", lambda: self._true() + self.step)

    def fence(self, number: int) -> int:
        """As Redis gives them: by its own clock, which is right."""
        return int(self._true() * 1000) * 1024 + number


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_n18_a_step_of_the_clock_ends_no_call_early_or_late(
    tmp_path: Path, three: list[int], clock: Clock, step: int
) -> None:
    async with GpuRig(tmp_path) as rig:
        rig.has("a", three)
        await rig.turn("a", clock.fence(10))
        rig.world.fault(three[1], "lock", hang=HOUR)
        begun = time.monotonic()
        rig.want("b", clock.fence(20))
        await wait_until_async(lambda: ("lock", three[1]) in rig.world.log("lock"))
        clock.step = step
        await wait_until_async(lambda: len(rig.results) > 1)
        assert time.monotonic() - begun > QUICK.lock + QUICK.grace
        assert rig.results[-1].outcome == "FAILED"
        assert "did not answer in time" in rig.results[-1].reason
        assert rig.world.states(three) == ["running"] * 3
        assert (await rig.turn("b", clock.fence(30))).outcome == "READY"
        assert (await rig.turn("a", clock.fence(40))).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_n18_nor_a_pause_before_a_lock_is_tried_again(
    tmp_path: Path, three: list[int], clock: Clock, step: int
) -> None:
    async with GpuRig(tmp_path) as rig:
        rig.has("a", three)
        await rig.turn("a", clock.fence(10))
        rig.world.fault(three[1], "lock", times=2, code=600)
        begun = time.monotonic()
        rig.want("b", clock.fence(20))
        await wait_until_async(lambda: ("lock", three[1]) in rig.world.log("lock"))
        clock.step = step
        await wait_until_async(lambda: len(rig.results) > 1)
        assert time.monotonic() - begun > 3 * QUICK.first_pause
        assert rig.results[-1].outcome == "READY"
        assert rig.world.states(three) == ["checkpointed"] * 3
        clock.step = -step
        assert (await rig.turn("a", clock.fence(30))).outcome == "READY"
