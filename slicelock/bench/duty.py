"""What two GPU jobs gain by taking turns: each alone, then both on one GPU, with the same seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from statistics import median

from slicelock.bench.duty_round import Round, Told, play
from slicelock.bench.figures import Goal
from slicelock.embedded import EmbeddedServer
from slicelock.errors import ConfigurationError
from slicelock.local_agent import LocalAgent
from slicelock.scratch import scratch, temporary

SLICE = "duty"
BUSY_SHARE = 0.4
"""Of a job's time alone; the rest of each step it waits for its grader."""
BUSY_S = {"hooks": 0.6, "cuda": 8.0}
"""What a step should take on the GPU at least, so that a whole step is ten switches long or more."""
LARGE = ("--width=1024", "--layers=4", "--heads=8", "--batch=256", "--rate=0.0001")
"""A model whose weights and optimizer state take 0.6 GB."""
TINY = ("--width=8", "--heads=1", "--batch=1")
FEWEST, MOST = 2, 200  # epochs
SHARED_MEMORY = Path("/dev/shm")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Work:
    """What each job does. `size` are options that make the model; times are in seconds."""

    size: Sequence[str]
    steps: int
    epochs: int
    grade_s: float
    reproducible: bool = True
    """Whether two runs without slicelock agree: the floor for what sharing can reach."""

    def options(self, seed: int) -> list[str]:
        """The command line of the job with this seed."""
        own = (f"--slice={SLICE}", f"--seed={seed}", f"--steps={self.steps}", f"--epochs={self.epochs}")
        return [*self.size, *own, f"--grade-seconds={self.grade_s:.4f}"]


@dataclass(slots=True)
class Duty:
    """What was measured."""

    way: str
    work: Work
    solo: Sequence[Round]
    shared: Round

    @property
    def pairs(self) -> list[tuple[Told, Told]]:
        """Each job alone, and together with the other."""
        alone = [job for one in self.solo for job in one.jobs]
        return list(zip(alone, self.shared.jobs, strict=True))

    @property
    def identical(self) -> bool:
        """Whether every job has the losses, the weights and the optimizer state of its run alone."""
        return all(a.losses == b.losses and a.digest == b.digest for a, b in self.pairs)

    @property
    def differing_steps(self) -> dict[str, int]:
        """Each job's first step with another loss than alone."""
        steps = ((a.name, step) for a, b in self.pairs for step in _differences(a.losses, b.losses)[:1])
        return dict(steps)

    @property
    def series_s(self) -> float:
        return sum(one.wall_s for one in self.solo)

    @property
    def duty_ratio(self) -> float:
        """The duty together, of the sum of the duties alone."""
        return self.shared.duty / sum(one.duty for one in self.solo)

    @property
    def switch_s(self) -> float:
        """The shortest usual wait: that of a job which finds the GPU free and the other's state on it."""
        waits = sorted(wait for job in self.shared.jobs for wait in job.waits_s)
        return median(waits[: max(1, len(waits) // 2)])

    @property
    def step_in_switches(self) -> float:
        """How many switches long a step alone is."""
        step_s = median(one.wall_s / self.work.steps for one in self.solo)
        return step_s / self.switch_s

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        return [
            Goal("duty together, of the sum alone", self.duty_ratio, 0.9, at_most=False),
            Goal("time together, of both in series", self.shared.wall_s / self.series_s, 0.6, at_most=True),
            Goal("bit-identical", float(self.identical), 1.0, at_most=False),
            Goal("a step, in switches", self.step_in_switches, 10.0, at_most=False),
        ]

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        alone: dict[str, object] = {one.jobs[0].name: _told(one, one.jobs[0]) for one in self.solo}
        waits = [wait for job in self.shared.jobs for wait in job.waits_s]
        return {
            "way": self.way,
            "device": self.shared.jobs[0].device,
            "steps": self.work.steps,
            "step_busy_s": round(median(one.jobs[0].step_busy_s() for one in self.solo), 3),
            "step_grade_s": round(self.work.grade_s, 3),
            **alone,
            "together": self.shared.as_json(),
            "step_busy_together_s": round(median(job.step_busy_s() for job in self.shared.jobs), 3),
            "series_s": round(self.series_s, 3),
            "switch_s": round(self.switch_s, 4),
            "waits_s": [round(wait, 3) for wait in waits],
            "reproducible_alone": self.work.reproducible,
            "identical": self.identical,
            "differing_steps": self.differing_steps,
            "goals": {goal.name: round(goal.value, 3) for goal in self.goals()},
        }


def _differences(one: Sequence[float], other: Sequence[float]) -> list[int]:
    return [step for step, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def _told(one: Round, job: Told) -> dict[str, object]:
    return one.as_json() | {"accuracy": round(job.accuracy, 3), "last_loss": job.losses[-1]}


def measure(
    tell: Tell, steps: int = 24, way: str = "hooks", device: str = "0", size: Sequence[str] = LARGE
) -> Duty:
    """Run all of it. `way` moves the jobs' state: `hooks` or `cuda`. ConfigurationError where there is no
    PyTorch or no GPU; AgentError when the agent refuses the GPU."""
    if find_spec("torch") is None:
        raise ConfigurationError("PyTorch is not installed here.", advice="pip install torch, with CUDA.")
    busy_s = BUSY_S[way]
    _refuse_cpu(device)
    tell("how long a step takes")
    work = _sized(size, steps, busy_s, device)
    with stage(device, way) as env:
        solo: list[Round] = []
        for seed in (1, 2):
            tell(f"job {seed} alone")
            solo.append(play({f"job-{seed}": work.options(seed)}, env, device))
        tell("both together")
        shared = play({f"job-{seed}": work.options(seed) for seed in (1, 2)}, env, device)
    return Duty(way, work, solo, shared)


def _refuse_cpu(device: str) -> None:
    """ConfigurationError where jobs find no GPU: on a CPU such a model would take minutes for its trial."""
    if device.startswith("sim:"):
        return
    look = Work(TINY, 1, 1, 0.0).options(0)
    (job,) = play({"look": look}, _environment({"SLICELOCK_MODE": "off"}, device), device).jobs
    if job.device != "cuda":
        raise ConfigurationError("PyTorch finds no GPU here.", advice="Install PyTorch with CUDA.")


def _sized(size: Sequence[str], steps: int, busy_s: float, device: str) -> Work:
    """As many epochs as make a step take `busy_s` on the GPU, and the grader's time that goes with it."""
    trial, env = Work(size, 4, FEWEST, 0.0), _environment({"SLICELOCK_MODE": "off"}, device)
    (job,), (again,) = (play({"trial": trial.options(0)}, env, device).jobs for _ in range(2))
    generate_s, epoch_s = median(job.spent("generate")), median(job.spent("train")) / FEWEST
    epochs = min(MOST, max(FEWEST, ceil((busy_s - generate_s) / epoch_s)))
    grade_s = (generate_s + epochs * epoch_s) * (1 / BUSY_SHARE - 1)
    return Work(size, steps, epochs, grade_s, (job.losses, job.digest) == (again.losses, again.digest))


@contextmanager
def stage(device: str, way: str) -> Generator[Mapping[str, str]]:
    """A server and an agent with the one GPU; yields the jobs' environment."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        folder = stack.enter_context(scratch(temporary(), "bench"))
        pool = {"SLICELOCK_REDIS_URL": server.url, "SLICELOCK_POOL": "bench"}
        if device.startswith("sim:"):
            pool["SLICELOCK_SIM_DIR"] = str(stack.enter_context(scratch(SHARED_MEMORY, "bench")))
        own = {"SLICELOCK_STATE_DIR": str(folder), "SLICELOCK_NODE": "bench", "SLICELOCK_FALLBACK": way}
        stack.enter_context(LocalAgent({SLICE: device}, pool | own))
        yield _environment(pool, device)


def _environment(more: Mapping[str, str], device: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLICELOCK_")}
    visible = {} if device.startswith("sim:") else {"CUDA_VISIBLE_DEVICES": device}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **kept, **visible, **more}
