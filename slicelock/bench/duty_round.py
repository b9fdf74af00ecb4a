"""One round of the duty bench: training jobs as processes, alone or together, and how busy the GPU was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import IO, Any

from slicelock import children
from slicelock.errors import ConfigurationError, SlicelockError

LOOK_S, SAMPLE_MS = 0.05, 100
BUSY = {"generate": "reward", "train": "step"}  # phases on the GPU, by the events at their two ends


def example() -> Path:
    """The training script: in the installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    places = (package / "_examples" / "torch_grpo.py", package.parent / "examples" / "torch_grpo.py")
    if found := next((place for place in places if place.is_file()), None):
        return found
    raise ConfigurationError(f"There is no {places[0]}.", advice="Install slicelock again.")


@dataclass(frozen=True, slots=True)
class Told:
    """What one job has told. Times are ns of the monotonic clock."""

    name: str
    events: Sequence[Mapping[str, Any]]

    def _first(self, kind: str) -> Mapping[str, Any]:
        return next(event for event in self.events if event["event"] == kind)

    @property
    def device(self) -> str:
        return str(self._first("wait")["device"])

    @property
    def start_ns(self) -> int:
        """When it first asked for the GPU."""
        return int(self._first("wait")["t_ns"])

    @property
    def end_ns(self) -> int:
        return int(self._first("end")["t_ns"])

    @property
    def losses(self) -> list[float]:
        return [float(event["loss"]) for event in self.events if event["event"] == "step"]

    @property
    def accuracy(self) -> float:
        return float(self._first("end")["accuracy"])

    @property
    def digest(self) -> str:
        return str(self._first("end")["digest"])

    def spent(self, kind: str) -> list[float]:
        """Seconds from each such event to the next one."""
        return [(b["t_ns"] - a["t_ns"]) / 1e9 for a, b in pairwise(self.events) if a["event"] == kind]

    @property
    def busy_s(self) -> float:
        """Seconds that it generated and trained."""
        return sum(sum(self.spent(kind)) for kind in BUSY)

    def step_busy_s(self) -> float:
        """What an ordinary step takes on the GPU."""
        return sum(median(self.spent(kind)) for kind in BUSY)

    @property
    def waits_s(self) -> list[float]:
        """From each end of grading to the moment it had the GPU again."""
        return self.spent("wait")[1:]


@dataclass(frozen=True, slots=True)
class Round:
    """What happened in one round. `utilisation` is NVML's, from 0 to 1; None where nobody tells."""

    jobs: Sequence[Told]
    utilisation: float | None

    @property
    def wall_s(self) -> float:
        """From the first request of any job to the end of the last."""
        return (max(job.end_ns for job in self.jobs) - min(job.start_ns for job in self.jobs)) / 1e9

    @property
    def duty(self) -> float:
        """The share of that time in which a job generated or trained."""
        return sum(job.busy_s for job in self.jobs) / self.wall_s

    def as_json(self) -> dict[str, object]:
        """Seconds, and shares from 0 to 1."""
        told = None if self.utilisation is None else round(self.utilisation, 3)
        return {"wall_s": round(self.wall_s, 3), "duty": round(self.duty, 3), "utilisation": told}


@dataclass(slots=True)
class Sampler:
    """How busy NVML says that a GPU is, through nvidia-smi; knows nothing where that is missing."""

    output: IO[bytes] | None
    samples: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def look(self) -> None:
        """Take in what was told since the last look."""
        if self.output is None:
            return
        with suppress(BlockingIOError):
            for line in os.read(self.output.fileno(), 1 << 16).splitlines():
                if line.strip().isdigit():
                    self.samples.append((time.monotonic_ns(), int(line)))

    def mean(self, start_ns: int, end_ns: int) -> float | None:
        """The mean of that time, from 0 to 1."""
        inside = [percent for at, percent in self.samples if start_ns <= at <= end_ns]
        return mean(inside) / 100 if inside else None


@contextmanager
def sampler(device: str) -> Generator[Sampler]:
    """Samples one GPU while the block runs."""
    program = shutil.which("nvidia-smi")
    if program is None or device.startswith("sim:"):
        yield Sampler(None)
        return
    what = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    with children.start(
        [program, "-i", device, *what, "-lms", str(SAMPLE_MS)],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield Sampler(process.stdout)
        finally:
            process.kill()


class Job:
    """One training job as a process, as a context manager; ended with the block if it still runs."""

    def __init__(self, name: str, options: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = children.start(
            [sys.executable, str(example()), "--events", *options],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._said,
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._out.close()
        self._said.close()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def told(self) -> Told:
        """What it told; SlicelockError with its last words when it failed."""
        if code := self._process.wait():
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise SlicelockError(f"{self.name} ended with code {code}: {lines[-1]}")
        self._out.seek(0)
        return Told(self.name, [json.loads(line) for line in self._out if line.startswith(b"{")])


def play(jobs: Mapping[str, Sequence[str]], env: Mapping[str, str], device: str) -> Round:
    """Run jobs, given by name with their options, at once, to the end of the last."""
    with ExitStack() as stack:
        gpu = stack.enter_context(sampler(device))
        started: list[Job] = []
        for name, options in jobs.items():
            own = {**env, "SLICELOCK_JOB": name, "SLICELOCK_RUN": f"{name}-{time.monotonic_ns()}"}
            started.append(stack.enter_context(Job(name, options, own)))
        while any(job.running for job in started):
            gpu.look()
            time.sleep(LOOK_S)
        told = [job.told() for job in started]
        used = gpu.mean(min(one.start_ns for one in told), max(one.end_ns for one in told))
    return Round(told, used)
