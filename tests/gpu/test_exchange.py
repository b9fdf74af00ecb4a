"""Two TorchOffload runs change places on a real GPU that does not hold both, in real switches."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from slicelock.bench.line_process import SwapProcess
from slicelock.exchange import SideState
from tests.gpu.stage import GIB, Job, Stage
from tests.support.exchange_watch import Watch, watching

SIZE = 12
SPARE = 3 * GIB


@pytest.fixture
def watch(stage: Stage) -> Iterator[Callable[[], Watch]]:
    def agent() -> int:
        assert stage.agent is not None
        return stage.agent.process.pid

    with watching(agent) as begin:
        yield begin


@pytest.fixture
def jobs(stage: Stage) -> Iterator[list[Job]]:
    """Two runs of 12 GiB on a GPU with 15 GiB; the second has its turn behind it."""
    stage.serve(SLICELOCK_FALLBACK="hooks")
    with SwapProcess("plain") as hog:
        made = stage.start(("a", SIZE, "hook"), ("b", SIZE, "hook"))
        made[0].turn()
        hog.ask("hold", nbytes=int(hog.ask("facts")["free"]) - SPARE)
        made[1].turn()
        yield made


def expected(stage: Stage, turns: int) -> list[float]:
    """What a run's checksums are alone."""
    stage.jobs[0].close()
    stage.jobs[1].close()
    alone = stage.job("alone", SIZE, SLICELOCK_MODE="off")
    return [alone.turn()["checksum"] for _ in range(turns)]


@pytest.mark.slow
def test_they_overlap(
    stage: Stage, jobs: list[Job], watch: Callable[[], Watch], figures: Callable[..., None]
) -> None:
    a, b = jobs
    a.say("turn")
    middle = watch().until(lambda now: now.taken > 0 and now.leaver is SideState.UNDER_WAY)
    told = [a.told(), *(job.turn() for job in (b, a, b))]
    figures(gib=SIZE, waits_s=[one["waited"] for one in told], freed_when_seen=middle.freed)
    sums = expected(stage, 3)
    assert [one["checksum"] for one in told] == [sums[1], sums[1], sums[2], sums[2]]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["agent", "leaver"])
def test_a_kill_in_the_middle_loses_no_other_state(
    stage: Stage, jobs: list[Job], watch: Callable[[], Watch], victim: str
) -> None:
    a, b = jobs
    a.say("turn")
    watch().until(lambda now: now.taken > 0)
    assert stage.agent is not None
    os.kill(b.pid if victim == "leaver" else stage.agent.process.pid, signal.SIGKILL)
    if victim == "agent":
        stage.agent.process.wait()
        time.sleep(0.5)  # the hooks go on without an agent
        stage.serve(SLICELOCK_FALLBACK="hooks")
    told = [a.told(), *([b.turn()] if victim == "agent" else []), a.turn()]
    sums = expected(stage, 3)
    assert [one["checksum"] for one in told] == [sums[one["k"] - 1] for one in told]
    assert told[-1]["k"] == 3
