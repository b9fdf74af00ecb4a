"""Real processes, real signals: whoever dies or freezes when, nobody's arithmetic is off by a bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.identity import ProcessIdentity
from slicelock.wire import Acquire, Register
from tests.support.sim_job import Plan
from tests.support.sim_stage import Job, Stage
from tests.support.wait import wait_until

MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(own_server: Callable[..., EmbeddedServer], tmp_path: Path) -> Iterator[MakeStage]:
    """Make a stage with an agent; afterwards its device's record must be clean."""
    made: list[Stage] = []

    def make(slices: int = 1, **env: str) -> Stage:
        variables = {f"SLICELOCK_{name.upper()}": value for name, value in env.items()}
        stage = Stage({"SLICELOCK_REDIS_URL": own_server().url, **variables}, tmp_path, slices)
        made.append(stage)
        stage.start_agent()
        return stage

    yield make
    for stage in made:
        stage.close()
    violations = [
        line for stage in made for slice_ in stage.devices for line in stage.record(slice_).violations()
    ]
    assert violations == []


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    return make_stage()


def plan(stage: Stage, seed: int, **changes: object) -> Plan:
    return Plan(**{"seed": seed, "turns": 12, "devices": stage.devices, **changes})  # type: ignore[arg-type]


def test_jobs_take_turns_and_compute_as_if_alone(stage: Stage) -> None:
    jobs = [stage.start(plan(stage, seed), f"run-{seed}") for seed in range(3)]
    for job in jobs:
        job.finishes_right()
    record = stage.record()
    assert {use.run for use in record.uses} == {"run-0", "run-1", "run-2"}
    assert any(move.what == "restore" for move in record.moves)


@pytest.mark.parametrize("seed", range(4))
def test_jobs_killed_at_random_moments_harm_nobody(stage: Stage, seed: int) -> None:
    dice = random.Random(seed)
    kept = [stage.start(plan(stage, number, turns=20), f"kept-{number}") for number in range(2)]
    for number in range(4):
        doomed = stage.start(plan(stage, 10 + number, turns=1000), f"doomed-{number}")
        doomed.wait_for("yielded", dice.randint(1, 3))
        happened = dice.choice(["held", "computing", "rests", "yielded"])
        count = len(doomed.events(happened))
        wait_until(lambda d=doomed, h=happened, c=count: len(d.events(h)) > c)
        wait_until(lambda: dice.random() < 0.2)  # a few ms more or less
        doomed.kill()
    for job in kept:
        job.finishes_right()


def test_a_holder_killed_while_another_waits_makes_room_at_once(stage: Stage) -> None:
    holder = stage.start(plan(stage, 1, compute_s=30, turns=1), "holder")
    holder.wait_for("computing")
    waiter = stage.start(plan(stage, 2), "waiter", lease="60")
    wait_until(lambda: stage.picture()["queued"] != "0")
    holder.kill()
    waiter.wait_for("computing", timeout=1.5)
    waiter.finishes_right()


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_killed_at_random_moments_loses_nothing(stage: Stage, seed: int) -> None:
    dice = random.Random(seed)
    jobs = [stage.start(plan(stage, number, turns=25), f"run-{number}") for number in range(3)]
    for job in jobs:
        job.wait_for("yielded")
    for _ in range(4):
        moves = len(stage.record().moves) + dice.randint(0, 6)
        wait_until(lambda m=moves: len(stage.record().moves) >= m or all(job.doing == "done" for job in jobs))
        stage.kill_agent()
        stage.start_agent()
    for job in jobs:
        job.finishes_right()


def test_a_holder_and_the_agent_killed_together(stage: Stage) -> None:
    holder = stage.start(plan(stage, 1, compute_s=30, turns=1), "holder")
    holder.wait_for("computing")
    waiter = stage.start(plan(stage, 2), "waiter")
    wait_until(lambda: stage.picture()["queued"] != "0")
    stage.kill_agent()
    holder.kill()
    stage.start_agent()
    waiter.finishes_right()


def frozen_in_use(job: Job) -> None:
    job.wait_for("computing", len(job.events("computing")) + 1)
    job.signal(signal.SIGSTOP)


def test_a_holder_frozen_in_a_use_beyond_its_lease_keeps_the_device(stage: Stage) -> None:
    frozen = stage.start(plan(stage, 1, compute_s=2, turns=4), "frozen")
    frozen.wait_for("yielded")
    frozen_in_use(frozen)
    waiter = stage.start(plan(stage, 2), "waiter")
    wait_until(
        lambda: "in use by process" in str(stage.picture()["blocked"]), 20, "the agent says who is in a use"
    )
    assert not waiter.events("held")
    frozen.signal(signal.SIGCONT)
    frozen.finishes_right()
    waiter.finishes_right()
    assert frozen.events("lost")


def test_a_holder_frozen_between_uses_loses_its_turn_and_learns_it(stage: Stage) -> None:
    frozen = stage.start(plan(stage, 1, hesitate_s=1, turns=3), "frozen")
    frozen.wait_for("held", 2)
    frozen.signal(signal.SIGSTOP)
    waiter = stage.start(plan(stage, 2), "waiter")
    waiter.finishes_right()
    frozen.signal(signal.SIGCONT)
    frozen.finishes_right()
    (loss,) = frozen.events("lost")
    assert loss["state_saved"]


def test_a_waiter_frozen_and_granted_keeps_nobody_waiting_for_its_lease(stage: Stage) -> None:
    holder = stage.start(plan(stage, 1, compute_s=60, turns=1), "holder")
    holder.wait_for("computing")
    waiter = stage.start(plan(stage, 2, turns=2), "waiter", lease="600", wait_lease="6")
    wait_until(lambda: stage.picture()["queued"] == "1", 30)
    waiter.signal(signal.SIGSTOP)
    holder.kill()
    stage.start(plan(stage, 3), "next").finishes_right()
    assert not waiter.events("held")
    waiter.signal(signal.SIGCONT)
    waiter.finishes_right()


def test_a_waiter_frozen_and_killed_is_forgotten(stage: Stage) -> None:
    holder = stage.start(plan(stage, 1, compute_s=1, turns=6), "holder")
    holder.wait_for("computing")
    waiter = stage.start(plan(stage, 2, turns=1000), "waiter")
    waiter.wait_for("yielded")
    holder.wait_for("computing", len(holder.events("computing")) + 1)
    waiter.signal(signal.SIGSTOP)
    waiter.kill()
    holder.finishes_right()
    stage.start(plan(stage, 3), "next").finishes_right()


def test_calls_delivered_after_their_process_has_ended_hold_nobody_up(stage: Stage) -> None:
    """Nobody had known of it before; the agent finds out long before its leases of ten minutes end."""
    sleeper = subprocess.Popen(["sleep", "600"])
    process = str(ProcessIdentity.of(sleeper.pid))
    sleeper.kill()
    sleeper.wait()
    lease_ms = 600_000
    stage.run(Register("late", "late", process, os.getuid(), ("s0",), [], gone=False))
    stage.run(Acquire("late", "late", "main", 1, "0", 1, ("s0",), process, lease_ms, lease_ms))
    stage.start(plan(stage, 1), "next").finishes_right()
    assert stage.run(Register("late", "late", process, os.getuid(), ("s0",), [], gone=False)).lanes == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_everything_at_once(stage: Stage, seed: int) -> None:
    """Jobs come and are killed, freeze for less than a lease, and the agent dies over and over."""
    dice = random.Random(seed)
    kept = [stage.start(plan(stage, number, turns=60), f"kept-{number}") for number in range(3)]
    doomed: list[Job] = []

    def freeze() -> None:
        job = dice.choice(kept)
        job.signal(signal.SIGSTOP)
        pause(dice.uniform(0, 0.5))
        job.signal(signal.SIGCONT)

    def come() -> None:
        number = len(doomed)
        doomed.append(stage.start(plan(stage, 100 + number, turns=1000), f"doomed-{number}"))

    def die() -> None:
        if alive := [job for job in doomed if job.process.poll() is None]:
            dice.choice(alive).kill()

    def agent() -> None:
        stage.kill_agent()
        pause(dice.uniform(0, 0.3))
        stage.start_agent()

    for _ in range(25):
        dice.choice([freeze, come, die, agent])()
        pause(dice.uniform(0, 0.5))
    for job in doomed:
        job.kill()
    for job in kept:
        job.finishes_right()


def pause(seconds: float) -> None:
    """Let the others go on for a while: here time is the fault, not something to wait for."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until)


@pytest.mark.slow
def test_runs_with_lanes_and_members_on_two_slices_all_finish(make_stage: MakeStage) -> None:
    turns = 400  # about a minute
    stage = make_stage(slices=2, lease="10", renew="1")
    jobs = [
        stage.start(
            plan(stage, seed, turns=turns, lanes=("rollout", "train"), member=member, both=0.3),
            f"run-{seed}",
            member=member,
            members="2",
        )
        for seed in range(3)
        for member in ("0", "1")
    ]
    for job in jobs:
        job.finishes_right(timeout=60 + turns)
