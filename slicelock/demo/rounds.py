"""The demo's rounds: each job alone, all on one slice, and all again with one of them killed in its turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from slicelock.demo.jobs import JobFacts, JobProcess
from slicelock.demo.stage import Stage, Workload, work_for
from slicelock.errors import SlicelockError
from slicelock.sim.record import Record

LOOK_S, AIM_S = 0.01, 0.002  # between two looks at the jobs; while waiting for the moment to kill one
FASTER_GRADER = 0.5  # in the last round the others' graders take half the time: they wait for the victim


@dataclass(frozen=True, slots=True)
class Round:
    """What happened in one round. `record` is the device's, with nothing of other rounds."""

    title: str
    jobs: Sequence[JobFacts]
    record: Record

    @property
    def start_ns(self) -> int:
        """The first request of any job."""
        return min((job.start_ns for job in self.jobs if job.start_ns), default=0)

    @property
    def end_ns(self) -> int:
        """The end of the last step of any job."""
        return max(job.end_ns for job in self.jobs)

    @property
    def wall_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def duty(self) -> float:
        return self.record.duty(self.start_ns, self.end_ns)

    @property
    def switches(self) -> int:
        """How often the device went from one run to another."""
        return sum(a.run != b.run for a, b in pairwise(self.record.admissions))

    @property
    def bytes_moved(self) -> int:
        return sum(move.bytes for move in self.record.moves)

    def handovers_ms(self) -> list[float]:
        """For each switch: from when the device was free and asked for, to its first use."""
        asked = {job.run: job.waits for job in self.jobs}
        changes = [(a, b) for a, b in pairwise(self.record.uses) if a.run != b.run and a.end_ns]
        return [
            (b.start_ns - max([a.end_ns or 0, *(at for at in asked[b.run] if at <= b.start_ns)])) / 1e6
            for a, b in changes
        ]

    def after_kill_s(self) -> float:
        """From the kill to the first use by another run."""
        killed = next(job for job in self.jobs if job.killed_ns)
        later = (use.start_ns for use in self.record.uses if use.run != killed.run)
        return (min(at for at in later if at > killed.killed_ns) - killed.killed_ns) / 1e9


Watch = Callable[[str, Sequence[JobFacts]], None]


def measure(stage: Stage, jobs: int, watch: Watch) -> Workload:
    """Let one job run a few steps without a grader's time, to learn how long they take on this machine."""
    facts = JobFacts("measuring", "measuring", 0, ("--steps=10", "--grade-seconds=0"), mode="off")
    _play(stage, "measuring a step", [facts], watch)
    generate, train, asking = (median(facts.spent[what]) / 1e9 for what in ("generate", "train", "reward"))
    return work_for(generate + train, asking, jobs)


def alone(stage: Stage, name: str, seed: int, work: Workload, watch: Watch) -> Round:
    """One job alone, on the same slice and device as later all together."""
    jobs = [JobFacts(name, f"{name}-alone", seed, work.options())]
    return _round(stage, f"{name} alone", jobs, watch)


def together(stage: Stage, names: Sequence[str], work: Workload, watch: Watch) -> Round:
    """All jobs at once, taking turns."""
    jobs = [JobFacts(name, f"{name}-shared", seed, work.options()) for seed, name in enumerate(names, 1)]
    return _round(stage, f"{len(jobs)} jobs taking turns", jobs, watch)


def with_a_kill(stage: Stage, names: Sequence[str], work: Workload, watch: Watch) -> Round:
    """All jobs at once; the first is killed (-9) while it computes in its turn and another waits for it."""
    quick = replace(work, grade_s=work.grade_s * FASTER_GRADER)
    options = [work.options(), *(quick.options() for _ in names[1:])]
    jobs = [
        JobFacts(name, f"{name}-kill", seed, words)
        for seed, (name, words) in enumerate(zip(names, options, strict=True), 1)
    ]
    one = _round(stage, "one killed in its turn", jobs, watch, victim=jobs[0])
    if not jobs[0].killed_ns:
        raise SlicelockError(f"Nobody waited while {jobs[0].name} had its turn, so it was not killed.")
    return one


def _round(
    stage: Stage, title: str, jobs: Sequence[JobFacts], watch: Watch, victim: JobFacts | None = None
) -> Round:
    _play(stage, title, jobs, watch, victim)
    whole, runs = stage.record.read(), {job.run for job in jobs}
    record = Record(
        uses=tuple(use for use in whole.uses if use.run in runs),
        strays=tuple(stray for stray in whole.strays if stray.run in runs),
        admissions=tuple(one for one in whole.admissions if one.run in runs),
        moves=tuple(move for move in whole.moves if move.run in runs),
        damaged=whole.damaged,
    )
    return Round(title, jobs, record)


def _play(
    stage: Stage, title: str, jobs: Sequence[JobFacts], watch: Watch, victim: JobFacts | None = None
) -> None:
    processes: list[JobProcess] = []
    try:
        for facts in jobs:
            processes.append(stage.start_job(facts))  # noqa: PERF401 - those started are closed if one fails
        while sum(process.read() for process in processes):  # all of them: any() would stop at the first
            watch(title, jobs)
            aiming = victim is not None and not victim.killed_ns
            if victim and aiming and _is_the_moment(stage, victim, jobs):
                processes[jobs.index(victim)].kill()
            time.sleep(AIM_S if aiming else LOOK_S)
    finally:
        for process in processes:
            process.close()
    watch(title, jobs)


def _is_the_moment(stage: Stage, victim: JobFacts, jobs: Sequence[JobFacts]) -> bool:
    if victim.step * 3 < victim.steps or victim.doing != "train":
        return False
    uses = stage.record.read().uses
    computing = bool(uses) and uses[-1].run == victim.run and uses[-1].end_ns is None
    return computing and any(job.doing == "wait" for job in jobs)
