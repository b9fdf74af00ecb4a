"""A real agent and model servers as processes of their own, whose memory is a simulated device."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from slicelock.identity import ProcessIdentity
from tests.support.scripts import Scripts, connect
from tests.support.stage import ROOT, AgentStage, Run
from tests.support.wait import wait_until

SIZE = 20_000


@dataclass
class ServerProcess:
    """A model server in a process of its own, on a device of a node."""

    folder: Path
    kind: str = "vllm"
    device: str = "d"
    traits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        words = [self.kind, "--device", f"sim:{self.device}", "--bytes", str(SIZE)]
        self.child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.model_servers",
                *words,
                "--traits",
                json.dumps(self.traits),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "SLICELOCK_JOB": "a",
                "SLICELOCK_SIM_DIR": str(self.folder / "sim"),
            },
            stdout=subprocess.PIPE,
        )
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().decode().strip()
        self.process = str(ProcessIdentity.of(self.child.pid))

    @property
    def hook(self) -> dict[str, Any]:
        """What agents are told of it."""
        facts = {"kind": self.kind, "url": self.url, "drain": 0.5, "timeout": 0.5, **self.options}
        return {"name": self.kind, "slices": [], "self": False, "residue": 0, "server": facts}

    def tell(self, what: str, **facts: Any) -> dict[str, Any]:
        """Arrange something for the test; returns the server's state."""
        return self._post(f"/test/{what}", facts)

    def question(self, path: str, **facts: Any) -> None:
        """Ask as its framework would."""
        self._post(path, facts)

    def asked(self, path: str) -> list[str]:
        """The questions to a path so far."""
        calls: list[str] = self.tell("state")["calls"]
        return [call for call in calls if call.split()[1].partition("?")[0] == path]

    @property
    def asleep(self) -> list[str]:
        return self.tell("state")["asleep" if self.kind == "vllm" else "released"]

    def _post(self, path: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, json.dumps(facts).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else {}

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()


class World:
    """A stage with a run `a` of servers and a run `b` beside it."""

    def __init__(self, stage: AgentStage) -> None:
        self.stage, self.servers = stage, list[ServerProcess]()
        self.b = stage.run("b")

    def serve(self, kind: str = "vllm", device: str = "d", **facts: Any) -> ServerProcess:
        """Start a server; `options` are told to agents, `traits` are its own."""
        self.servers.append(ServerProcess(self.stage.folder / "n1", kind, device, **facts))
        return self.servers[-1]

    def take(self, *, load: bool = True) -> Run:
        """Have the run of all servers take the slice, use its devices, and yield it."""
        self.a = self.stage.run("a")
        self.register()
        self.a.take("s")
        for server in self.servers if load else ():
            server.tell("load")
        self.a.yield_()
        return self.a

    def register(self, **changes: Any) -> None:
        for server in self.servers:
            hook = {**server.hook, **changes}
            self.stage.world.run(wire.Register("a", "a", server.process, os.getuid(), ("s",), [hook]))

    def used(self, device: str = "d") -> int:
        opened = self.stage.device(device)
        used = opened.used
        opened.close()
        return used

    def refused(self) -> str:
        """Have `b` ask in vain; why it does not get the slice."""
        self.b.register("s")
        self.b.ask("s")
        blocked = wait_until(lambda: self.stage.slice().blocked, what="the slice is blocked")
        return str(blocked["n1"]["reason"])

    def records(self) -> list[str]:
        """What the agent has written down of servers."""
        folder = self.stage.folder / "n1" / "state"
        return [path.read_text() for path in folder.glob("*.servers/*")]

    def close(self) -> None:
        for server in self.servers:
            server.close()


@pytest.fixture
def server(valkey_server: EmbeddedServer) -> EmbeddedServer:
    """One kind of Redis is enough here."""
    return valkey_server


@pytest.fixture
def world(server: EmbeddedServer, pool: str, tmp_path: Path) -> Iterator[World]:
    with connect(server.url) as client:
        stage = AgentStage(Scripts(client, pool, clock=False), server.url, tmp_path)
        made = World(stage)
        yield made
        made.close()
        stage.close()


def only_hooks(world: World, devices: str = "d") -> None:
    """A slice whose runs are moved by their own means or not at all."""
    world.stage.declare("s", {"n1": [f"sim:{device}" for device in devices]}, fallback="hooks")
    world.stage.agent(slices={"s": ",".join(f"sim:{device}" for device in devices)}, hook_deadline="8")


# ---------------------------------------------------------------- what works


def test_a_server_sleeps_while_another_run_has_the_slice(world: World) -> None:
    only_hooks(world)
    server = world.serve()
    a = world.take()
    assert world.used() == SIZE
    world.b.take("s")
    assert (server.asleep, world.used()) == (["kv_cache", "weights"], 0)
    assert server.asked("/sleep") == ["POST /sleep?level=1&mode=wait"]
    assert world.b.again().moved
    assert len(world.records()) == 1
    world.b.yield_()
    a.take("s")
    assert (server.asleep, world.used(), world.records()) == ([], SIZE, [])
    assert a.again().moved


def test_a_server_that_its_framework_put_to_sleep_stays_asleep(world: World) -> None:
    only_hooks(world)
    server = world.serve()
    a = world.take()
    server.question("/sleep?level=1&mode=wait")
    world.b.take("s")
    world.b.yield_()
    a.take("s")
    assert server.asleep
    assert (len(server.asked("/sleep")), server.asked("/wake_up")) == (1, [])


def test_sglang_is_released_and_resumed(world: World) -> None:
    only_hooks(world)
    server = world.serve("sglang")
    a = world.take()
    world.b.take("s")
    assert (server.asleep, world.used()) == (["cuda_graph", "kv_cache", "weights"], 0)
    world.b.yield_()
    a.take("s")
    assert (server.asleep, world.used()) == ([], SIZE)
    assert not server.tell("state")["dead"]


def test_sglang_that_has_released_its_memory_is_not_asked_again(world: World) -> None:
    only_hooks(world)
    server = world.serve("sglang")
    a = world.take()
    server.question("/release_memory_occupation", tags=["kv_cache", "weights"])
    world.b.take("s")
    world.b.yield_()
    a.take("s")
    assert server.asleep == ["kv_cache", "weights"]
    assert not server.tell("state")["dead"]


def test_level_2_with_a_method_that_fills_the_weights(world: World) -> None:
    only_hooks(world)
    server = world.serve(options={"level": 2, "reload": "reload_weights"})
    a = world.take()
    world.b.take("s")
    world.b.yield_()
    a.take("s")
    assert (server.asleep, server.tell("state")["weights"]) == ([], "loaded")


# ---------------------------------------------------------------- what goes wrong


def test_one_of_three_answers_with_an_error(world: World) -> None:
    only_hooks(world, "def")
    first, second, third = (world.serve(device=device) for device in "def")
    world.take()
    second.tell("fault", path="/sleep", status=500, effect=False)
    reason = world.refused()
    assert "run a cannot be evicted" in reason
    assert f"{second.url}: POST /sleep was answered with 500" in reason
    for server in (first, third):
        assert server.asleep == []
    assert [world.used(device) for device in "def"] == [SIZE] * 3
    second.tell("fault", path="/sleep")
    world.b.wait_held(20)
    assert [world.used(device) for device in "def"] == [0] * 3
    assert [server.tell("state")["second_sleeps"] for server in world.servers] == [0] * 3


def test_one_of_three_never_answers(world: World) -> None:
    only_hooks(world, "def")
    first, second, third = (world.serve(device=device) for device in "def")
    a = world.take()
    second.tell("fault", path="/sleep", effect=False, late=60)
    assert f"{second.url}: it could not be put to sleep within" in world.refused()
    assert (first.asleep, third.asleep) == ([], [])
    a.ask("s")
    a.wait_held(20)  # who cannot be evicted goes first, and has all its servers
    assert [server.asleep for server in world.servers] == [[]] * 3


def test_yes_is_no_proof_that_memory_was_freed(world: World) -> None:
    only_hooks(world)
    server = world.serve(traits={"frees": False})
    world.take()
    assert f"{SIZE} bytes are still in use on sim:d after its hooks" in world.refused()
    assert len(server.asked("/sleep")) == 1


def test_what_a_server_does_not_free_is_saved_from_outside(world: World) -> None:
    world.stage.agent(hook_deadline="8")
    world.serve(traits={"frees": False})
    world.take()
    world.b.take("s")
    assert world.used() == 0
    assert world.stage.images()


def test_nothing_is_sent_to_another_process(world: World) -> None:
    only_hooks(world)
    server, other = world.serve(), ServerProcess(world.stage.folder / "n1", device="other")
    try:
        world.take()
        port = other.url.rpartition(":")[2]
        world.stage.world.run(
            wire.Register("a", "a", server.process, os.getuid(), ("s",), [{**other.hook, "residue": 0}])
        )
        assert f"another process listens on port {port}, so nothing is sent there" in world.refused()
        assert not [call for call in other.tell("state")["calls"] if "/test/" not in call]
    finally:
        other.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://192.0.2.7:8000", "it is not on this machine, so this agent does not speak to it"),
        ("http://127.0.0.1:{closed}", "nobody listens on port"),
    ],
)
def test_what_cannot_be_the_server_is_not_spoken_to(world: World, url: str, words: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = probe.getsockname()[1]
    only_hooks(world)
    server = world.serve(options={"url": url.format(closed=closed)})
    world.take()
    assert words in world.refused()
    assert not server.asked("/sleep")


def test_a_server_that_is_described_wrongly_is_named_and_nothing_else_harmed(world: World) -> None:
    agent = world.stage.agent()
    world.serve(options={"mode": "now"})
    world.take()
    world.b.take("s")
    assert "describes itself wrongly: 'now' is no mode of going to sleep" in agent.log()
    assert world.stage.images()  # saved from outside instead


def test_a_server_that_ends_makes_room(world: World) -> None:
    only_hooks(world)
    server = world.serve()
    a = world.take()
    world.b.take("s")
    server.close()
    a.kill()
    wait_until(lambda: world.stage.report()["saved"] in ([], {}))
    world.b.yield_()
    world.b.take("s")


# ---------------------------------------------------------------- an agent that dies


def test_a_new_agent_wakes_what_the_last_one_put_to_sleep(world: World) -> None:
    world.stage.declare("s", {"n1": ["sim:d"]}, fallback="hooks")
    agent = world.stage.agent()
    server = world.serve()
    a = world.take()
    world.b.take("s")
    world.stage.kill(agent)
    world.stage.agent()
    world.b.yield_()
    a.take("s")
    assert (server.asleep, world.used(), world.records()) == ([], SIZE, [])


def test_a_new_agent_leaves_asleep_what_was_found_so(world: World) -> None:
    world.stage.declare("s", {"n1": ["sim:d"]}, fallback="hooks")
    agent = world.stage.agent()
    server = world.serve()
    a = world.take()
    server.question("/sleep?level=1&mode=wait")
    world.b.take("s")
    world.stage.kill(agent)
    world.stage.agent()
    world.b.yield_()
    a.take("s")
    assert server.asleep
    assert not server.asked("/wake_up")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_agent_that_dies_while_a_server_falls_asleep(world: World, kind: str) -> None:
    path = "/sleep" if kind == "vllm" else "/release_memory_occupation"
    world.stage.declare("s", {"n1": ["sim:d"]}, fallback="hooks")
    agent = world.stage.agent()
    server = world.serve(kind)
    a = world.take()
    server.tell("fault", path=path, late=1.0, times=1)
    world.b.register("s")
    world.b.ask("s")
    wait_until(lambda: server.asked(path))
    world.stage.kill(agent)
    wait_until(lambda: server.asleep)
    world.stage.agent()
    world.b.wait_held()
    assert len(server.asked(path)) == 1
    world.b.yield_()
    a.take("s")
    assert (server.asleep, world.used(), server.tell("state")["dead"]) == ([], SIZE, "")


def test_an_agent_that_dies_while_a_server_is_resumed(world: World) -> None:
    world.stage.declare("s", {"n1": ["sim:d"]}, fallback="hooks")
    agent = world.stage.agent()
    server = world.serve("sglang")
    a = world.take()
    world.b.take("s")
    server.tell("fault", path="/resume_memory_occupation", late=1.0, times=1)
    world.b.yield_()
    a.register("s")
    a.ask("s")
    wait_until(lambda: server.asked("/resume_memory_occupation"))
    world.stage.kill(agent)
    wait_until(lambda: not server.asleep)
    world.stage.agent()
    a.wait_held()
    state = server.tell("state")
    assert (state["dead"], state["paused"], world.used()) == ("", False, SIZE)
    assert len(server.asked("/resume_memory_occupation")) == 1
