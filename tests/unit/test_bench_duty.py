"""The duty bench's arithmetic, from what two jobs might have told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from slicelock.bench import duty as bench
from slicelock.bench.duty import Duty, Work
from slicelock.bench.duty_round import Job, Round, Sampler, Told
from slicelock.errors import ConfigurationError, SlicelockError

S = 1_000_000_000
STEP = [("generate", 1), ("reward", 6), ("wait", 1), ("train", 3)]  # seconds until the next event


def told(name: str, start: int, waiting: int = 1, loss: float = 0.5, steps: int = 2) -> Told:
    """A job that waits `waiting` seconds for each turn and computes 4 s in each step."""
    parts = [(kind, waiting if kind == "wait" else seconds) for kind, seconds in STEP]
    timed = [("wait", waiting), ("step", 0), *(part for _ in range(steps) for part in [*parts, ("step", 0)])]
    times = accumulate((seconds for _, seconds in timed), initial=start)
    facts: dict[str, Any] = {"device": "cuda", "loss": loss, "accuracy": 0.9, "digest": f"{loss}"}
    events = [
        {"event": kind, "t_ns": at * S, **facts}
        for (kind, _), at in zip([*timed, ("end", 0)], times, strict=True)
    ]
    return Told(name, events)


def duty(loss_together: float = 0.5) -> Duty:
    solo = [Round([told(name, 0)], None) for name in ("job-1", "job-2")]
    shared = Round([told("job-1", 0), told("job-2", 2, 3, loss_together)], 0.7)
    return Duty("hooks", Work((), 2, 2, 6.0), solo, shared)


def test_busy_is_the_time_of_generating_and_training() -> None:
    one = told("job-1", 5)
    assert (one.busy_s, one.step_busy_s()) == (8, 4)
    assert one.waits_s == [1, 1]
    assert (one.start_ns, one.end_ns) == (5 * S, 28 * S)


def test_time_and_duty_are_of_all_jobs_together() -> None:
    made = duty()
    assert [one.wall_s for one in made.solo] == [23, 23]
    assert made.shared.wall_s == 31
    assert made.shared.duty == pytest.approx(16 / 31)
    assert made.duty_ratio == pytest.approx((16 / 31) / (16 / 23))
    facts = {goal.name: goal for goal in made.goals()}
    assert facts["time together, of both in series"].value == pytest.approx(31 / 46)
    assert not facts["time together, of both in series"].reached
    assert made.switch_s == 1


def test_a_job_whose_losses_differ_is_named_with_the_step() -> None:
    assert duty().identical
    assert duty().differing_steps == {}
    assert not duty(0.25).identical
    assert duty(0.25).differing_steps == {"job-2": 0}
    assert duty(0.25).as_json()["differing_steps"] == {"job-2": 0}


def test_utilisation_is_of_the_time_of_the_round() -> None:
    sampler = Sampler(None, [(1, 100), (5, 40), (6, 60), (9, 0)])
    assert sampler.mean(4, 7) == 0.5
    assert sampler.mean(20, 30) is None


def test_a_job_that_fails_is_told_with_its_last_words() -> None:
    with (
        Job("job-1", ["--no-such-option"], {}) as job,
        pytest.raises(SlicelockError, match="job-1 ended with code"),
    ):
        job.told()


def test_without_a_gpu_it_ends_before_it_trains_a_model_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[list[str]] = []

    def play(jobs: Mapping[str, list[str]], env: Mapping[str, str], device: str) -> Round:
        played.extend(jobs.values())
        return Round([replace(told("look", 0), events=[{"event": "wait", "device": "cpu"}])], None)

    monkeypatch.setattr(bench, "find_spec", lambda name: name)
    monkeypatch.setattr(bench, "play", play)
    with pytest.raises(ConfigurationError, match="PyTorch finds no GPU here"):
        bench.measure(lambda line: None)
    assert len(played) == 1
    assert {"--width=8", "--steps=1", "--epochs=1"} <= set(played[0])
