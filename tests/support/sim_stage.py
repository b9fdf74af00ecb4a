"""Real processes on simulated devices for tests: agents, and jobs that run `sim_job`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from slicelock import children
from slicelock.codec import ScriptCall
from slicelock.local_agent import LocalAgent
from slicelock.settings import StoreSettings
from slicelock.sim import Record
from slicelock.sim.record import RecordReader
from slicelock.store.sync import Store
from slicelock.wire import Status
from tests.support.sim_job import Plan, expected
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
FINISH_S = 60.0


class Job:
    """One process of a run, and what it has told so far."""

    def __init__(self, plan: Plan, run: str, env: Mapping[str, str], folder: Path) -> None:
        self.plan, self.run = plan, run
        self.said = folder / f"{run}.{plan.member}.{len(list(folder.glob('*.out')))}.out"
        self.errors = self.said.with_suffix(".err")
        self.told, self._offset = list[dict[str, Any]](), 0
        self._of_kind: dict[str, list[dict[str, Any]]] = {}
        with self.said.open("wb") as out, self.errors.open("wb") as err:
            self.process = children.start(
                [sys.executable, "-m", "tests.support.sim_job", plan.text()],
                cwd=ROOT,
                env={**os.environ, **env, "SLICELOCK_JOB": f"job-{plan.seed}", "SLICELOCK_RUN": run},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def listen(self) -> list[dict[str, Any]]:
        """What it has told since the last call; only whole lines."""
        with self.said.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        news = [json.loads(line) for line in whole.splitlines()]
        self.told += news
        for event in news:
            self._of_kind.setdefault(event["event"], []).append(event)
        return news

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What it has told of this kind, in order."""
        self.listen()
        return self._of_kind.get(kind, [])[:]

    @property
    def doing(self) -> str:
        """Its last event; empty before the first."""
        self.listen()
        return self.told[-1]["event"] if self.told else ""

    def wait_for(self, kind: str, count: int = 1, timeout: float = FINISH_S) -> dict[str, Any]:
        """Its `count`-th event of this kind."""

        def look() -> list[dict[str, Any]]:
            assert self.process.poll() in (None, 0), self.errors.read_text()[-3000:]
            return self.events(kind)[count - 1 :]

        return wait_until(
            look, timeout, f"{self.run} tells {kind!r} {count} times; it said {self.doing!r} last"
        )[0]

    def results(self, timeout: float = FINISH_S) -> dict[str, str]:
        """What came out, once it has finished by itself."""
        done = self.wait_for("done", timeout=timeout)
        assert self.process.wait(10) == 0, self.errors.read_text()[-3000:]
        return done["results"]

    def finishes_right(self, timeout: float = FINISH_S) -> None:
        """It finishes, and every bit is as if it had been alone."""
        assert self.results(timeout) == expected(self.plan), f"{self.run} computed garbage"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Stage:
    """A pool with one agent on this machine: slices `s0`, `s1`, … with a simulated device each."""

    def __init__(
        self, env: Mapping[str, str], folder: Path, slices: int = 1, capacity: int = 131_072
    ) -> None:
        self.folder, self.devices = folder, {f"s{number}": f"sim:{number}" for number in range(slices)}
        self.env = {
            **env,
            "SLICELOCK_SIM_DIR": str(folder / "sim"),
            "SLICELOCK_SIM_CAPACITY": str(capacity),
            "SLICELOCK_STATE_DIR": str(folder / "agent"),
            "SLICELOCK_NODE": "here",
            "SLICELOCK_LEASE": "2",
            "SLICELOCK_RENEW": "0.5",
            "SLICELOCK_POLL": "0.5",
        }
        self.jobs: list[Job] = []
        self._records = {slice_: RecordReader(self._record_of(slice_)) for slice_ in self.devices}
        self._agents = ExitStack()
        self.agent: LocalAgent | None = None

    def start_agent(self) -> None:
        self.agent = self._agents.enter_context(LocalAgent(self.devices, self.env))

    def kill_agent(self) -> None:
        """kill -9, and nobody cleans up after it."""
        assert self.agent
        self.agent.process.kill()
        self.agent.process.wait()

    def start(self, plan: Plan, run: str, **env: str) -> Job:
        """Start one process of a run."""
        variables = {f"SLICELOCK_{name.upper()}": value for name, value in env.items()}
        job = Job(plan, run, self.env | variables, self.folder)
        self.jobs.append(job)
        return job

    def record(self, slice_: str = "s0") -> Record:
        """What the device of a slice has recorded."""
        return self._records[slice_].read()

    def _record_of(self, slice_: str) -> Path:
        return self.folder / "sim" / f"{self.devices[slice_].removeprefix('sim:')}.record.jsonl"

    def picture(self, slice_: str = "s0") -> dict[str, Any]:
        """What `status` shows of a slice."""
        return self.run(Status(slice_)).picture["slices"][0]

    def run(self, command: ScriptCall[Any]) -> Any:
        """One call of a script, as a client makes it."""
        settings = StoreSettings.load(redis_url=self.env["SLICELOCK_REDIS_URL"])
        with closing(Store(settings)) as store:
            return store.run(command)

    def close(self) -> None:
        for job in self.jobs:
            job.kill()
        self._agents.close()

    def said_by_agent(self) -> str:
        return self.agent.log() if self.agent else ""
