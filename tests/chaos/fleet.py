"""What a campaign is about: agents with a simulated device each, and jobs that take turns on all of them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from slicelock.local_agent import LocalAgent
from slicelock.sim import Record
from tests.chaos.coordinator import Coordinator
from tests.support.sim_job import Plan, expected
from tests.support.sim_stage import Job
from tests.support.wait import wait_until

NODES = 3
KEPT = 8  # processes that no fault kills, with two lanes each
DOOMED = 4  # processes that are killed and replaced, with one lane
LEASE = {"SLICELOCK_LEASE": "20", "SLICELOCK_RENEW": "1", "SLICELOCK_POLL": "1"}
SHORT_LEASE = {**LEASE, "SLICELOCK_LEASE": "3"}
FINISH_S = 90.0
DISK_BYTES = 4 << 20  # what an agent's journal may take up


@dataclass
class Actor:
    """One job's process, and whether it is to last."""

    job: Job
    kept: bool

    @property
    def alive(self) -> bool:
        return self.job.process.poll() is None


@contextmanager
def small_disk(folder: Path) -> Generator[None]:
    """A small disk of its own for a folder; AssertionError where mounting is not allowed."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "slicelock-chaos", folder],
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, f"campaigns need root, to mount a small disk: {made.stderr}"
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


class Fleet:
    """Three agents and twelve jobs with twenty lanes in all, as a context manager."""

    def __init__(self, coordinator: Coordinator, folder: Path, seed: int) -> None:
        self.coordinator, self.folder, self.seed = coordinator, folder, seed
        self.slices = {f"s{number}": f"sim:{number}" for number in range(NODES)}
        self.end = folder / "end"
        self.env = {
            "SLICELOCK_REDIS_URL": coordinator.url,
            "SLICELOCK_SIM_DIR": str(folder / "sim"),
            "SLICELOCK_SIM_CAPACITY": "65536",  # one run's state fits
            "SLICELOCK_STORE_TIMEOUT": "2",
        }
        self.actors: list[Actor] = []
        self._stack = ExitStack()
        self.agents: list[LocalAgent] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for number in range(NODES):
                stack.enter_context(small_disk(self.state_dir(number)))
                self.agents.append(
                    stack.enter_context(LocalAgent(self._slices_of(number), self._agent_env(number)))
                )
            stack.callback(self._kill_jobs)
            for number in range(KEPT):
                self._start(number, kept=True)
            for number in range(DOOMED):
                self._start(number + KEPT, kept=False)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    # ------------------------------------------------------------ whom a fault can meet

    @property
    def kept(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.kept]

    @property
    def doomed(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.kept and actor.alive]

    def replace(self, actor: Actor) -> None:
        """Kill a doomed job; another run of it starts."""
        actor.job.signal(signal.SIGCONT)
        actor.job.kill()
        self._start(len(self.actors), kept=False)

    def restart_agent(self, number: int) -> None:
        """Start the agent of a node that was killed."""
        self.agents[number].start()

    def state_dir(self, number: int) -> Path:
        """Where the agent of a node keeps its journal."""
        return self.folder / f"agent-{number}"

    # ------------------------------------------------------------ what happened

    def news(self) -> Iterator[tuple[Actor, dict[str, Any]]]:
        """What all jobs have told since the last call."""
        for actor in self.actors:
            for event in actor.job.listen():
                yield actor, event

    def record(self, slice_: str) -> Record:
        """What the device of a slice has recorded."""
        number = self.slices[slice_].removeprefix("sim:")
        return Record.load(self.folder / "sim" / f"{number}.record.jsonl")

    def images(self) -> list[str]:
        """State that is still saved on a node."""
        return [path.name for path in (self.folder / "sim" / "images").glob("*/*/*/*")]

    # ------------------------------------------------------------ the end

    def finish(self) -> list[str]:
        """Have all jobs end after their present turn; what is wrong with their results."""
        self.end.touch()
        wrong: list[str] = []
        for actor in self.actors:
            if not actor.kept and not actor.alive:
                continue
            try:
                wait_until(lambda a=actor: not a.alive, FINISH_S, f"{actor.job.run} finishes")
            except AssertionError:
                job = actor.job
                wrong.append(f"{job.run} was not served within {FINISH_S:g} s of the end; it was {job.doing}")
                continue
            wrong += _mistakes(actor)
        return wrong

    def _start(self, number: int, *, kept: bool) -> None:
        dice = Random(f"{self.seed}/{number}")
        plan = Plan(
            seed=dice.randrange(1 << 30),
            turns=1_000_000,
            devices=self.slices,
            lanes=("rollout", "train") if kept else ("main",),
            both=0.1,
            compute_s=0.05,
            away_s=0.3,
            until=str(self.end),
        )
        env = self.env | (LEASE if kept else SHORT_LEASE)
        job = Job(plan, f"{'kept' if kept else 'doomed'}-{number}", env, self.folder)
        self.actors.append(Actor(job, kept))

    def _slices_of(self, number: int) -> dict[str, str]:
        name = f"s{number}"
        return {name: self.slices[name]}

    def _agent_env(self, number: int) -> dict[str, str]:
        return {
            **self.env,
            "SLICELOCK_NODE": f"n{number}",
            "SLICELOCK_STATE_DIR": str(self.state_dir(number)),
        }

    def _kill_jobs(self) -> None:
        for actor in self.actors:
            actor.job.kill()


def _mistakes(actor: Actor) -> list[str]:
    """What is wrong with the result of a job that has ended by itself."""
    run = actor.job.run
    if actor.job.process.returncode or actor.job.doing != "done":
        return [f"{run} failed: {actor.job.errors.read_text()[-800:]}"]
    done = actor.job.told[-1]
    return [] if done["results"] == expected(actor.job.plan, done["taken"]) else [f"{run} computed garbage"]
