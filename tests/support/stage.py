"""A real agent on a real server, and runs played by hand with real processes, for tests of the agent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slicelock import wire
from slicelock.identity import ProcessIdentity
from slicelock.local_agent import LocalAgent
from slicelock.picture import SliceView
from slicelock.sim import Record, SimDevice
from tests.support.rig import CAPACITY, read_from, settings_in, write_to
from tests.support.scripts import Scripts
from tests.support.wait import wait_until
from tests.support.world import Member, World

ROOT = Path(__file__).resolve().parents[2]
SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"


class Run(Member):
    """A run of one process, which really exists and does nothing; the test speaks for it."""

    child: subprocess.Popen[bytes]

    @property
    def process(self) -> str:
        return str(ProcessIdentity.of(self.child.pid)) if self.child.poll() is None else self.was

    def begin(self, env: Mapping[str, str] | None = None) -> Run:
        """Start its process; it ends with the test."""
        command = [sys.executable, "-c", SLEEPER]
        variables = {"SLICELOCK_JOB": self.job, **(env or {})}
        self.child = subprocess.Popen(
            command, env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.child.stdout is not None
        self.child.stdout.readline()
        self.was = self.process
        return self

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        self.kill()
        for end in (self.child.stdin, self.child.stdout):
            if end:
                end.close()

    def wait_held(self, timeout: float = 10.0) -> None:
        """Wait until the turn asked for has begun."""
        wait_until(lambda: self.again().outcome == "HELD", timeout, f"{self.run} holds; it is {self.state}")

    def take(self, *slices: str, timeout: float = 10.0) -> None:
        """Register, ask, and wait until the turn has begun."""
        self.register(*slices)
        self.ask(*slices)
        self.wait_held(timeout)

    def obey(self, outcome: str = "done", reason: str = "", size: int = 5) -> dict[str, Any]:
        """Wait for a command to its hooks and answer it."""
        [command] = wait_until(lambda: self.renew(done=self.k - 1).commands, what="a command for its hooks")
        answer = {**command, "outcome": outcome, "reason": reason, "bytes": size, "seconds": 0.1}
        self.renew(done=self.k - 1, answers=[answer])
        return command


class AgentStage:
    """Agents of one pool, each with a folder of its own, and the scripts beside them."""

    def __init__(self, scripts: Scripts, url: str, folder: Path) -> None:
        self.world, self.url, self.folder = World(scripts), url, folder
        self.runs: list[Run] = []
        self._agents = ExitStack()

    def env(self, node: str = "n1", **facts: str) -> dict[str, str]:
        """The variables of a node's agent."""
        given = {
            "redis_url": self.url,
            "pool": self.world.keys.pool,
            "node": node,
            "state_dir": str(self.folder / node / "state"),
            "sim_dir": str(self.folder / node / "sim"),
            "sim_capacity": str(CAPACITY),
            "beat": "0.3",
            "silent": "2",
            **facts,
        }
        return {f"SLICELOCK_{name.upper()}": value for name, value in given.items()}

    def agent(self, node: str = "n1", slices: Mapping[str, str] | None = None, **facts: str) -> LocalAgent:
        """Start a node's agent and wait until it is ready."""
        agent = self._agents.enter_context(LocalAgent(slices or {"s": "sim:d"}, self.env(node, **facts)))
        self._agents.callback(
            lambda: print(f"agent of {node}: {agent.log()}")
        )  # pytest shows it with a failure
        return agent

    def kill(self, agent: LocalAgent) -> None:
        agent.process.kill()
        agent.process.wait()

    def try_agent(self, *options: str, **facts: str) -> tuple[int, str]:
        """Run an agent that is expected to end by itself; its exit code and what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "slicelock_agent", *options],
            env={**os.environ, **self.env(**facts)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert not done.stdout
        return done.returncode, done.stderr

    def start_agent(self, *options: str, **facts: str) -> subprocess.Popen[bytes]:
        """Start an agent without waiting for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "slicelock_agent", *options],
            env={**os.environ, **self.env(**facts)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, name: str, env: Mapping[str, str] | None = None, **facts: Any) -> Run:
        """A run whose process is alive."""
        self.runs.append(Run(self.world, name, "0", **facts).begin(env))
        return self.runs[-1]

    def slice(self, name: str = "s") -> SliceView:
        return self.world.slice(name)

    def report(self, node: str = "n1", name: str = "s") -> dict[str, Any]:
        """What a node has reported of a slice."""
        view = next(one for one in self.world.picture().nodes if one.name == node)
        return dict(view.reports.get(name, {}))

    def declare(self, name: str, devices: Mapping[str, list[str]], **settings: Any) -> None:
        reply = self.world.run(wire.Declare(name, devices, settings))
        assert reply.outcome == "OK", reply

    # ------------------------------------------------------------ devices

    def device(self, name: str = "d", node: str = "n1") -> SimDevice:
        settings = settings_in(self.folder, sim_dir=self.folder / node / "sim")
        return SimDevice.open(name, settings=settings)

    def write(self, data: bytes, name: str = "d", node: str = "n1") -> None:
        """Have the run in its turn put its state on a device."""
        write_to(self.device(name, node), data)

    def read(self, size: int, name: str = "d", node: str = "n1") -> bytes:
        return read_from(self.folder / node / "sim", name, size)

    def images(self, node: str = "n1") -> list[str]:
        return sorted(path.name for path in (self.folder / node / "sim" / "images").glob("*/*/*/*"))

    def record(self, name: str = "d", node: str = "n1") -> Record:
        return Record.load(self.folder / node / "sim" / f"{name}.record.jsonl")

    def close(self) -> None:
        for run in self.runs:
            run.close()
        self._agents.close()
