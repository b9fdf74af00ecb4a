"""Two TorchOffload runs change places on a GPU that does not hold both, block by block, in real switches:
agent, jobs and Redis as processes, the driver's world and CPU tensors instead of a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slicelock_agent.arrival import MARGIN

from slicelock import children
from slicelock.embedded import EmbeddedServer
from slicelock.exchange import SideState
from tests.support.exchange_job import GPU, MIB, PARTS, SIZE
from tests.support.exchange_watch import Watch, pages, watching
from tests.support.fake_driver import VARIABLE, World
from tests.support.wait import wait_until

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SPARE = 16 * MIB


def expected(k: int) -> float:
    """The checksum of a job before its k-th change."""
    return float(sum((number + k - 1) * (MIB // 2) * (number + 1) for number in range(PARTS)))


class Job:
    """One `exchange_job` process."""

    def __init__(self, run: str, env: dict[str, str]) -> None:
        self.process = children.start(
            [sys.executable, "-m", "tests.support.exchange_job", "trainers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env, "SLICELOCK_JOB": run, "SLICELOCK_RUN": run},
        )
        self.k = 0
        assert self.told()["ready"]

    def say(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the job has ended"
        return json.loads(line)

    def done(self) -> None:
        """Its turn has ended, and its state was as it left it."""
        self.k += 1
        assert self.told() == {"k": self.k, "checksum": expected(self.k)}

    def turn(self) -> None:
        self.say("turn")
        self.done()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Node:
    """An agent for the fake GPU, and the jobs on it."""

    def __init__(self, url: str, pool: str, folder: Path) -> None:
        self.world = World(folder / "world.json").create({GPU: MARGIN + SIZE + SPARE})
        self.env = {
            "SLICELOCK_REDIS_URL": url,
            "SLICELOCK_POOL": pool,
            "SLICELOCK_NODE": "n1",
            "SLICELOCK_STATE_DIR": str(folder / "state"),
            "SLICELOCK_BEAT": "0.2",
            "SLICELOCK_FALLBACK": "hooks",
            VARIABLE: str(self.world.path),
        }
        self.said, self.jobs, self.agents = folder / "agent.log", list[Job](), list[int]()
        self.start()

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.agent = children.start(
                [sys.executable, "-m", "tests.support.fake_gpu_agent", "--slice", "trainers=0"],
                cwd=ROOT,
                env={**os.environ, **self.env},
                stdout=said,
                stderr=said,
            )
        self.agents.append(self.agent.pid)
        wait_until(lambda: self.said.read_text().count("agent ready") == len(self.agents), 20, "the agent")

    def job(self, run: str) -> Job:
        self.jobs.append(Job(run, self.env))
        return self.jobs[-1]

    def close(self) -> None:
        for job in self.jobs:
            job.close()
        self.agent.terminate()
        self.agent.wait(20)
        print(self.said.read_text())


@pytest.fixture
def node(server: EmbeddedServer, pool: str, tmp_path: Path) -> Iterator[Node]:
    made = Node(server.url, pool, tmp_path)
    yield made
    made.close()


@pytest.fixture
def watch(node: Node) -> Iterator[Callable[[], Watch]]:
    with watching(lambda: node.agents[-1]) as begin:
        yield begin


def test_two_runs_change_places_block_by_block(node: Node, watch: Callable[[], Watch]) -> None:
    a, b = node.job("a"), node.job("b")
    a.turn()
    b.turn()  # its first: nothing of it is to come back, so that a leaves alone
    a.say("turn")
    seen = watch()
    middle = seen.until(lambda now: now.taken > 0 and now.leaver is SideState.UNDER_WAY)
    assert middle.freed < SIZE
    a.done()
    last = seen.now
    assert (last.leaver, last.comer, last.freed, last.taken) == (SideState.DONE, SideState.DONE, SIZE, SIZE)
    for job in (b, a, b):
        job.turn()
    assert node.world.log("out of memory") == []
    assert pages(*node.agents) == []


def test_the_comer_comes_when_the_leaver_is_killed(node: Node, watch: Callable[[], Watch]) -> None:
    a, b = node.job("a"), node.job("b")
    a.turn()
    b.turn()
    a.say("turn")
    watch().until(lambda now: 0 < now.freed < SIZE // 2)
    b.process.send_signal(signal.SIGKILL)
    a.done()
    a.turn()


def test_the_leaver_is_whole_when_the_comer_is_killed(node: Node, watch: Callable[[], Watch]) -> None:
    a, b = node.job("a"), node.job("b")
    a.turn()
    b.turn()
    a.say("turn")
    watch().until(lambda now: 0 < now.taken < SIZE // 2)
    a.process.send_signal(signal.SIGKILL)
    b.turn()
    b.turn()


def test_nothing_is_lost_when_the_agent_is_killed(node: Node, watch: Callable[[], Watch]) -> None:
    a, b = node.job("a"), node.job("b")
    a.turn()
    b.turn()
    a.say("turn")
    watch().until(lambda now: 0 < now.taken < SIZE // 2)
    node.agent.send_signal(signal.SIGKILL)
    node.agent.wait()
    node.start()
    a.done()
    for job in (b, a, b):
        job.turn()
    assert node.world.log("out of memory") == []
    assert pages(*node.agents) == []
