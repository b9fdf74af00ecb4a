"""The driver's checkpoint on a real GPU: agent, helpers, Redis and PyTorch jobs as users run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from slicelock_agent.nvml import Nvml

from slicelock.embedded import EmbeddedServer
from slicelock.guard import die_with_parent
from slicelock.local import LocalAgent
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
GIB = 1 << 30


class Job:
    """One `gpu_job` process."""

    def __init__(self, env: dict[str, str], run: str, gib: float, *options: str) -> None:
        self.run = run
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.gpu_job", "trainers", str(gib), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env, "SLICELOCK_JOB": run, "SLICELOCK_RUN": run},
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509 - one system call, no lock is taken
        )
        self.pid = self._process.pid

    def say(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
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
        self.agent = LocalAgent({"trainers": "0"}, {**self.env, **variables}).start()
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


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    nvml = Nvml()
    if os.getpid() in nvml.users(nvml.all()[0].uuid):
        pytest.skip("this process uses the GPU itself; run this file in a process of its own")
    with EmbeddedServer() as server:
        made = Stage(tmp_path, server.url)
        yield made
        made.close()


@pytest.fixture
def on_gpu() -> Callable[[], set[int]]:
    nvml = Nvml()
    return lambda: set(nvml.users(nvml.all()[0].uuid))


def helpers_of(agent: LocalAgent) -> list[int]:
    task = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children")
    return [int(pid) for pid in task.read_text().split()]


def test_two_jobs_share_a_gpu_without_hooks(stage: Stage, on_gpu: Callable[[], set[int]]) -> None:
    stage.serve()
    a, b = stage.start(("a", 8), ("b", 8))
    told = [(one.run, one.turn()) for one in (a, b, a, b, a)]
    for run, facts in told:
        print(run, facts)
    sums = {run: [facts["checksum"] for one, facts in told if one == run] for run in "ab"}
    assert sums["a"][:2] == sums["b"]
    assert sums["a"][0] != sums["a"][1]
    assert on_gpu() & {a.pid, b.pid} == {a.pid}


def test_a_foreign_process_keeps_a_run_saved_until_it_leaves(stage: Stage) -> None:
    stage.serve()
    a, b = stage.start(("a", 8), ("b", 1))
    first = a.turn()
    b.turn()
    command = (
        "import torch, time; x = torch.zeros(100 << 28, device='cuda'); print(1, flush=True); time.sleep(99)"
    )
    hog = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE)
    assert hog.stdout is not None
    hog.stdout.readline()
    a.say("turn")
    assert stage.agent is not None
    wait_until(lambda: f"process {hog.pid}" in stage.agent.log(), 20, "the foreign process is named")
    hog.kill()
    hog.communicate()
    assert a.told()["k"] == 2
    assert first["k"] == 1


@pytest.mark.parametrize("victim", ["agent", "helper"])
def test_a_kill_in_the_middle_of_a_save_costs_nothing(stage: Stage, victim: str) -> None:
    agent = stage.serve()
    a, b, again = stage.start(("a", 8), ("b", 1), ("c", 8))
    sums = [a.turn()["checksum"], a.turn()["checksum"]]
    b.say("turn")
    wait_until(lambda: "evict a" in shown(stage), 20, "the eviction begins")
    time.sleep(1.0)  # in the middle of the driver's copy
    if victim == "agent":
        agent.process.kill()
        agent.process.wait()
        stage.serve()
    else:
        for pid in helpers_of(agent):
            os.kill(pid, signal.SIGKILL)
    assert b.told()["k"] == 1
    expected = [again.turn()["checksum"] for _ in range(3)]
    assert [*sums, a.turn()["checksum"]] == expected


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


def test_nothing_of_a_run_with_hooks_stays_where_that_is_asked_for(
    stage: Stage, on_gpu: Callable[[], set[int]]
) -> None:
    stage.serve(SLICELOCK_ZERO_RESIDUE="1")
    a, b, other = stage.start(("a", 8, "hook"), ("b", 1), ("c", 8))
    sums = [a.turn()["checksum"], a.turn()["checksum"]]
    b.turn()
    assert a.pid not in on_gpu()
    last = a.turn()
    print(last)
    assert [*sums, last["checksum"]] == [other.turn()["checksum"] for _ in range(3)]


def test_several_processes_without_the_safe_settings_are_refused_at_once(stage: Stage) -> None:
    stage.serve()
    stage.job("a", 0.25, SLICELOCK_MEMBERS="2", SLICELOCK_MEMBER="0").say("turn")
    stage.job("a", 0.25, SLICELOCK_MEMBERS="2", SLICELOCK_MEMBER="1").say("turn")
    assert stage.agent is not None
    wait_until(lambda: "NCCL_P2P_DISABLE=1" in stage.agent.log(), 20)


@pytest.mark.parametrize("how", ["touch", "freeze"])
def test_a_run_that_froze_itself_gets_a_turn_of_the_agents(stage: Stage, how: str) -> None:
    stage.serve()
    a, b = stage.start(("a", 2), ("b", 1))
    a.turn()
    b.turn()
    a.say(how)
    assert a.told()["touched"]
    assert b.turn()["k"] == 2
    assert a.turn()["k"] == 2
