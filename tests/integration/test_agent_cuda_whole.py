"""A whole agent with a fake GPU: Redis, clients in processes of their own, the driver between them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from slicelock_agent import backends
from slicelock_agent.agent import Agent
from slicelock_agent.host_budget import HostBudget

from slicelock.embedded import EmbeddedServer
from slicelock.errors import BackendUnavailable
from slicelock.picture import Picture, SliceView
from slicelock.settings import AgentSettings
from slicelock.store import AsyncStore
from slicelock.wire import Status
from tests.support import gpu_rig
from tests.support.fake_driver import GIB, World
from tests.support.gpu_rig import GPU, OTHER, ROOT, SIZE
from tests.support.wait import wait_until_async

CODE = """
import sys
import slicelock

trainers = slicelock.Slice("trainers")
for line in sys.stdin:
    try:
        with trainers.turn():
            print("held", flush=True)
            sys.stdin.readline()
        print("yielded", flush=True)
    except Exception as failure:
        print(type(failure).__name__, failure, flush=True)
"""


class Client:
    """A run that takes turns when told to."""

    def __init__(self, run: str, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env, "SLICELOCK_JOB": f"job-{run}", "SLICELOCK_RUN": run},
        )
        self.pid = self._process.pid

    async def say(self, word: str = "go") -> str:
        """Tell it to go on; what it answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout is not None
        return (await asyncio.to_thread(self._process.stdout.readline)).strip()

    async def turn(self) -> None:
        assert await self.say() == "held"
        assert await self.say() == "yielded"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Node:
    """An agent in this process, with two fake GPUs."""

    def __init__(self, url: str, pool: str, folder: Path) -> None:
        self.world = World(folder / "world.json").create({GPU: SIZE, OTHER: SIZE})
        self.env = {"SLICELOCK_REDIS_URL": url, "SLICELOCK_POOL": pool}
        self.settings = AgentSettings(
            redis_url=url,  # type: ignore[arg-type]
            pool=pool,
            node="n1",
            state_dir=folder / "state",
            beat=0.2,
            silent=2.0,
        )
        self.store = AsyncStore(self.settings, name="test")
        self.clients: list[Client] = []
        self.agent: Agent | None = None
        self._stop, self._serving = asyncio.Event(), None

    async def start(self, **slices: tuple[str, ...]) -> None:
        self.agent = Agent(self.settings, slices, "test")
        await self.agent.start()
        self._serving: Any = asyncio.create_task(self.agent.serve(self._stop))

    def client(self, run: str, **variables: str) -> Client:
        self.clients.append(Client(run, {**self.env, **variables}))
        return self.clients[-1]

    async def view(self) -> tuple[SliceView, Any]:
        picture = Picture.of(self.settings.pool, (await self.store.run(Status())).picture)
        return picture.slices[0], picture.nodes[0].reports.get("trainers", {})

    async def stop(self) -> None:
        if self._serving is not None:
            self._stop.set()
            await self._serving
            self._stop.clear()
        if self.agent is not None:
            await self.agent.close()

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        await self.stop()
        await self.store.aclose()


@pytest.fixture
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with much memory, and the fake driver as the agent's."""
    monkeypatch.setitem(backends.OWN, "cuda", "tests.support.gpu_rig:fake_cuda")
    monkeypatch.setattr("slicelock_agent.agent.HostBudget", lambda: HostBudget(lambda: (1 << 42, 1 << 42)))


@pytest.fixture
async def node(plenty: None, server: EmbeddedServer, pool: str, tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(server.url, pool, tmp_path)
    gpu_rig.WORLD[:] = [made.world]
    yield made
    await made.close()


async def test_two_runs_share_a_gpu(node: Node) -> None:
    await node.start(trainers=("0",))
    a, b = node.client("a"), node.client("b")
    await a.turn()
    node.world.add(a.pid, {GPU: 30 * GIB})
    await b.turn()
    assert node.world.state(a.pid) == "checkpointed"
    node.world.add(b.pid, {GPU: 60 * GIB})
    await a.turn()
    assert node.world.states([a.pid, b.pid]) == ["running", "checkpointed"]
    view, report = await node.view()
    assert view.nodes == {"n1": (GPU,)}
    assert (report["loaded"], report["saved"]) == (["a"], ["b"])
    await wait_until_async(lambda: told(node, {GPU: {"used": 30 * GIB, "total": SIZE, "busy": 50}}))


async def test_an_agent_without_its_journal_knows_again_whom_it_saved(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_yet() -> None:
        """Two agents of this test use the loop's threads."""

    monkeypatch.setattr(asyncio.get_running_loop(), "shutdown_default_executor", not_yet)
    await node.start(trainers=("0",))
    a, b = node.client("a"), node.client("b")
    await a.turn()
    node.world.add(a.pid, {GPU: 30 * GIB})
    await b.turn()
    node.world.add(b.pid, {GPU: 60 * GIB})
    await node.stop()
    shutil.rmtree(node.settings.state_dir)
    await node.start(trainers=("0",))
    assert node.agent is not None
    registry = node.agent._registry
    assert registry is not None
    await wait_until_async(lambda: [one.found.pid for one in registry.processes("a")] == [a.pid])
    assert node.world.state(a.pid) == "checkpointed"


async def told(node: Node, devices: Any) -> bool:
    return (await node.view())[1].get("devices") == devices


async def test_a_run_that_cannot_be_served_hears_why_at_its_first_acquire(node: Node) -> None:
    node.world.ill(GPU, mig=True)
    await node.start(trainers=("all",))
    answer = await node.client("a").say()
    assert answer.startswith("SwitchFailed No turn on trainers")
    assert "MIG" in answer


async def test_a_first_turn_without_the_free_memory_waits(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock_agent.switcher.ROOM_PATIENCE_S", 0.2)
    node.settings = node.settings.model_copy(update={"min_free": 60 * GIB})
    await node.start(trainers=("0",))
    hog, a = node.client("hog"), node.client("a")
    node.world.add(hog.pid, {GPU: 50 * GIB})
    waiting = asyncio.create_task(a.say())
    await wait_until_async(lambda: blocked(node, f"process {hog.pid}"), 30)  # two interpreters start first
    node.world.change(hog.pid, mem={})
    assert await waiting == "held"
    assert await a.say() == "yielded"


async def blocked(node: Node, words: str) -> bool:
    view, report = await node.view()
    return words in str(view.blocked) or words in report.get("doing", "")


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (("7",), "no GPU 7 here"),
        (("GPU-zzzz",), "no GPU GPU-zzzz here"),
        (("0", GPU), "named twice"),
        (("MIG-1",), "MIG"),
    ],
)
async def test_devices_that_make_no_sense_end_the_start(
    node: Node, devices: tuple[str, ...], words: str
) -> None:
    with pytest.raises(BackendUnavailable, match=words):
        await node.start(trainers=devices)
