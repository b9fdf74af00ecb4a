"""Kills and stops at any moment of the driver's switches, with real processes: each run goes on whole."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from slicelock.bench.swap_driver import Driver
from tests.gpu.own_gpu import used, users
from tests.gpu.stage import GIB, Job, Stage, helpers_of
from tests.support.wait import wait_until

SIZE = 4
PATIENCE_S = 30.0


class Moments:
    """Waits until a switch from one run to another has come to a given point."""

    def __init__(self, driver: Driver, leaver: Job, comer: Job) -> None:
        self._driver, self._leaver, self._comer = driver, leaver, comer

    def locking(self) -> None:
        """The driver waits for work on the GPU, about three seconds of it."""
        time.sleep(0.7)

    def locked(self) -> None:
        self._state(self._leaver, "locked", "checkpointed")

    def saving(self) -> None:
        self.locked()
        time.sleep(0.5)  # in the middle of the driver's copy, which takes two seconds

    def saved(self) -> None:
        self._state(self._leaver, "checkpointed")

    def restoring(self) -> None:
        wait_until(lambda: self._comer.pid in users(), PATIENCE_S, "the comer is on the GPU again")

    def restored(self) -> None:
        self._state(self._comer, "locked", "running")

    def _state(self, job: Job, *wanted: str) -> None:
        def reached() -> bool:
            return self._driver.call(job.pid, "state")["value"] in wanted

        wait_until(reached, PATIENCE_S, f"job {job.run} is {' or '.join(wanted)}")


MOMENTS: tuple[Callable[[Moments], None], ...] = (
    Moments.locking,
    Moments.locked,
    Moments.saving,
    Moments.saved,
    Moments.restoring,
    Moments.restored,
)


def expected(stage: Stage, gib: float, turns: int) -> list[float]:
    """What a run's checksums are alone."""
    alone = stage.job("alone", gib, SLICELOCK_MODE="off")
    return [alone.turn()["checksum"] for _ in range(turns)]


def kill(stage: Stage, victim: str) -> int:
    """Kill the agent and start another, or all its helpers; how many processes that were."""
    assert stage.agent is not None
    if victim == "agent":
        stage.agent.process.kill()
        stage.agent.process.wait()
        stage.serve()
        return 1
    helpers = helpers_of(stage.agent)
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    return len(helpers)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["agent", "helper"])
def test_a_kill_at_any_moment_of_a_switch_costs_nothing(
    stage: Stage, figures: Callable[..., None], victim: str
) -> None:
    stage.serve()
    leaver, comer = stage.start(("a", SIZE), ("b", SIZE))
    told = {job.run: [job.turn()["checksum"]] for job in (leaver, comer)}
    leaver, comer = comer, leaver
    with Driver() as driver:
        for moment in MOMENTS:
            if moment is Moments.locking:
                leaver.say("spin")
                assert leaver.told()["spins"]
            begun = time.monotonic()
            comer.say("turn")
            moment(Moments(driver, leaver, comer))
            at_s, here = round(time.monotonic() - begun, 2), users()
            on_gpu = [job.run for job in (leaver, comer) if job.pid in here]
            killed = kill(stage, victim)
            facts = comer.told()
            took = {"at_s": at_s, "whole_s": round(time.monotonic() - begun, 2)}
            figures(victim=victim, moment=moment.__name__, on_gpu=on_gpu, killed=killed, **took)
            told[comer.run].append(facts["checksum"])
            assert users() & {leaver.pid, comer.pid} == {comer.pid}
            leaver, comer = comer, leaver
    alone = expected(stage, SIZE, max(map(len, told.values())))
    assert told == {run: alone[: len(sums)] for run, sums in told.items()}


# ------------------------------------------------------------ stopped, and killed while saved


def test_a_stopped_run_is_saved_when_it_goes_on(stage: Stage) -> None:
    agent = stage.serve()
    a, b = stage.start(("a", 1), ("b", 1))
    sums = [a.turn()["checksum"]]
    os.kill(a.pid, signal.SIGSTOP)
    b.say("turn")
    wait_until(lambda: f"process {a.pid} is stopped" in agent.log(), PATIENCE_S, "the stopped run is named")
    assert a.pid in users()
    os.kill(a.pid, signal.SIGCONT)
    assert b.told()["k"] == 1
    assert [*sums, a.turn()["checksum"]] == expected(stage, 1, 2)


def test_a_stopped_run_is_restored_when_it_goes_on(stage: Stage) -> None:
    agent = stage.serve()
    a, b = stage.start(("a", 1), ("b", 1))
    sums = [a.turn()["checksum"]]
    b.say("hold")
    assert b.told()["holding"] == 1
    a.say("turn")
    time.sleep(0.5)  # until it waits in line
    os.kill(a.pid, signal.SIGSTOP)
    b.say("on")
    assert b.told()["k"] == 1
    wait_until(lambda: f"process {a.pid} is stopped" in agent.log(), PATIENCE_S, "the stopped run is named")
    assert a.pid not in users()
    os.kill(a.pid, signal.SIGCONT)
    assert [*sums, a.told()["checksum"]] == expected(stage, 1, 2)


def test_a_run_killed_while_it_is_saved_takes_nothing_with_it(stage: Stage) -> None:
    baseline = used()
    agent = stage.serve()
    a, b, c = stage.start(("a", 4), ("b", 1), ("c", 1))
    a.turn()
    sums = [b.turn()["checksum"]]
    os.kill(a.pid, signal.SIGKILL)
    assert c.turn()["k"] == 1
    sums.append(b.turn()["checksum"])
    assert users() == {b.pid}
    assert used() < baseline + 2 * GIB + (512 << 20)
    assert "POISONED" not in agent.log()
    assert sums == expected(stage, 1, 2)
