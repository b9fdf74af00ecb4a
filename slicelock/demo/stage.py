"""What the demo plays on: a server, an agent with one accelerator, and the time that a job takes alone."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pydantic import SecretStr

from slicelock.demo.jobs import JobFacts, JobProcess
from slicelock.demo.plays import Play
from slicelock.demo.told import ToldRecord
from slicelock.embedded import EmbeddedServer
from slicelock.local_agent import LocalAgent
from slicelock.scratch import scratch, temporary
from slicelock.settings import AgentSettings, StoreSettings
from slicelock.sim.record import Record, RecordReader
from slicelock.variables import PREFIX

SLICE, POOL = "demo", "demo"
BUSY_SHARE = 0.43  # of a job's time alone; the rest of each step it waits for its grader
SHARED_MEMORY = Path("/dev/shm")
TIME_S = 26  # for all runs together, without starting and ending them
LAUNCHERS = ("SLURM_", "TORCHELASTIC_", "OMPI_", "PMI")


@dataclass(frozen=True, slots=True)
class Workload:
    """What each job does: `steps` steps, each with `busy_s` on the accelerator and `grade_s` of waiting for
    the grader."""

    steps: int
    busy_s: float
    grade_s: float

    def options(self) -> tuple[str, ...]:
        """The job's command line, after the play's own options."""
        return f"--slice={SLICE}", f"--steps={self.steps}", f"--grade-seconds={self.grade_s:.4f}"


class Recorded(Protocol):
    """What has happened on the device, as far as it is known now."""

    def read(self) -> Record: ...


class Stage:
    """Server, agent and folders, as a context manager: all there when the block begins, all gone when it
    ends."""

    def __init__(self, play: Play) -> None:
        self.play, self._stack = play, ExitStack()

    def __enter__(self) -> Self:
        self.play.check()
        try:
            self._set_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _set_up(self) -> None:
        self.folder = self._stack.enter_context(scratch(temporary(), "demo"))
        self.devices = self._stack.enter_context(scratch(SHARED_MEMORY, "demo"))
        self._recorded = RecordReader(self.devices / f"{self.play.device.removeprefix('sim:')}.record.jsonl")
        server = self._stack.enter_context(EmbeddedServer())
        self.env = clean_environment() | {
            "SLICELOCK_REDIS_URL": server.url,
            "SLICELOCK_POOL": POOL,
            "SLICELOCK_SIM_DIR": str(self.devices),
            **self.play.env,
        }
        self._told = ToldRecord(StoreSettings(redis_url=SecretStr(server.url), pool=POOL))
        self._stack.callback(self._told.close)

    def start_agent(self) -> None:
        """Start the agent, which makes a simulated device; from then on there is a record to read."""
        unset = {f"{PREFIX}{name.upper()}": "" for name in AgentSettings.model_fields}
        own = {"SLICELOCK_STATE_DIR": str(self.folder), "SLICELOCK_NODE": "demo"}
        self._stack.enter_context(LocalAgent({SLICE: self.play.device}, unset | self.env | own))

    @property
    def record(self) -> Recorded:
        """The device's own, if it keeps one."""
        return self._recorded if self.play.recorded else self._told

    def start_job(self, facts: JobFacts) -> JobProcess:
        """Start one job; the caller closes it."""
        self._told.jobs.append(facts)
        return JobProcess((str(self.play.path), *self.play.options), facts, self.env, self.folder)


def clean_environment() -> dict[str, str]:
    """This process's environment without settings and launchers of the user's own: the demo is the same
    everywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, *LAUNCHERS))}
    return {name: value for name, value in kept.items() if name not in ("RANK", "WORLD_SIZE")}


def work_for(busy_s: float, asking_s: float, jobs: int) -> Workload:
    """As many steps as there is time for, each with the grader's time that makes a job alone busy by its
    share: what remains after `busy_s` on the accelerator and `asking_s` of talking to the grader."""
    step_s = busy_s / BUSY_SHARE
    alone_s = TIME_S / (jobs + 2 * max(1, jobs * BUSY_SHARE))  # each job alone, then all together twice
    return Workload(min(24, max(12, round(alone_s / step_s))), busy_s, max(0.0, step_s - busy_s - asking_s))
