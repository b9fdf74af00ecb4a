"""What whole switches are played on: a server, an agent for one GPU, and PyTorch jobs as users run them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from slicelock import children
from slicelock.local_agent import LocalAgent
from tests.gpu.own_gpu import own_gpu

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
GIB = 1 << 30


class Job:
    """One `gpu_job` process."""

    def __init__(self, env: dict[str, str], run: str, gib: float, *options: str) -> None:
        self.run = run
        self._process = children.start(
            [sys.executable, "-m", "tests.support.gpu_job", "trainers", str(gib), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env, "SLICELOCK_JOB": run, "SLICELOCK_RUN": run},
        )
        self.pid = self._process.pid

    def say(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE_S)[0], f"job {self.run} says nothing"
        line = self._process.stdout.readline()
        assert line, f"job {self.run} has ended"
        return json.loads(line)

    def ready(self) -> None:
        """Wait until it has loaded PyTorch."""
        assert self.told()["ready"] == self.pid

    def turn(self) -> dict[str, Any]:
        self.say("turn")
        return self.told()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Stage:
    """A server, an agent for the first GPU, and jobs."""

    def __init__(self, folder: Path, url: str) -> None:
        self.env = {
            "SLICELOCK_REDIS_URL": url,
            "SLICELOCK_STATE_DIR": str(folder),
            "SLICELOCK_NODE": "n1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agent"), os.environ.get("PYTHONPATH", "")]),
        }
        self.jobs: list[Job] = []
        self.agent: LocalAgent | None = None

    def serve(self, **variables: str) -> LocalAgent:
        if self.agent is not None:
            sys.stderr.write(self.agent.log())
            self.agent.close()
        self.agent = LocalAgent({"trainers": own_gpu()}, {**self.env, **variables}).start()
        return self.agent

    def job(self, run: str, gib: float, *options: str, **variables: str) -> Job:
        [made] = self.start((run, gib, *options), **variables)
        return made

    def start(self, *given: tuple[Any, ...], **variables: str) -> list[Job]:
        """Several jobs at once; each is (run, GiB, options)."""
        made = [Job({**self.env, **variables}, *one) for one in given]
        self.jobs += made
        for one in made:
            one.ready()
        return made

    def close(self) -> None:
        for job in self.jobs:
            job.close()
        if self.agent is not None:
            sys.stderr.write(self.agent.log())
            self.agent.close()


def helpers_of(agent: LocalAgent) -> list[int]:
    task = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children")
    return [int(pid) for pid in task.read_text().split()]


def shown(stage: Stage) -> str:
    told = subprocess.run(
        [sys.executable, "-m", "slicelock", "status", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **stage.env},
        cwd=ROOT,
        check=False,
    )
    return told.stdout
