"""A real agent and model servers as processes of their own, whose memory is a simulated device."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.support.model_servers_stage import SIZE, ServerProcess, ServerWorld, only_hooks
from tests.support.scripts import Scripts, connect
from tests.support.stage import AgentStage
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
def world(server: EmbeddedServer, pool: str, tmp_path: Path) -> Iterator[ServerWorld]:
    with connect(server.url) as client:
        stage = AgentStage(Scripts(client, pool, clock=False), server.url, tmp_path)
        made = ServerWorld(stage)
        yield made
        made.close()
        stage.close()


# ---------------------------------------------------------------- what works


def test_a_server_sleeps_while_another_run_has_the_slice(world: ServerWorld) -> None:
    only_hooks(world)
    server = world.serve()
    a = world.take()
    assert world.used() == SIZE
    world.b.take("s")
    assert (server.asleep, world.used()) == (["kv_cache", "weights"], 0)
    assert server.asked("/sleep") == ["POST /sleep?level=1&mode=keep"]
    assert world.b.again().moved
    assert len(world.records()) == 1
    world.b.yield_()
    a.take("s")
    assert (server.asleep, world.used(), world.records()) == ([], SIZE, [])
    assert a.again().moved


def test_a_server_that_its_framework_put_to_sleep_stays_asleep(world: ServerWorld) -> None:
    only_hooks(world)
    server = world.serve()
    a = world.take()
    server.question("/sleep?level=1&mode=wait")
    world.b.take("s")
    world.b.yield_()
    a.take("s")
    assert server.asleep
    assert (len(server.asked("/sleep")), server.asked("/wake_up")) == (1, [])


def test_sglang_is_released_and_resumed(world: ServerWorld) -> None:
    only_hooks(world)
    server = world.serve("sglang")
    a = world.take()
    world.b.take("s")
    assert (server.asleep, world.used()) == (["cuda_graph", "kv_cache", "weights"], 0)
    world.b.yield_()
    a.take("s")
    assert (server.asleep, world.used()) == ([], SIZE)
    assert not server.tell("state")["dead"]


def test_sglang_that_has_released_its_memory_is_not_asked_again(world: ServerWorld) -> None:
    only_hooks(world)
    server = world.serve("sglang")
    a = world.take()
    server.question("/release_memory_occupation", tags=["kv_cache", "weights"])
    world.b.take("s")
    world.b.yield_()
    a.take("s")
    assert server.asleep == ["kv_cache", "weights"]
    assert not server.tell("state")["dead"]


def test_level_2_with_a_method_that_fills_the_weights(world: ServerWorld) -> None:
    only_hooks(world)
    server = world.serve(options={"level": 2, "reload": "reload_weights"})
    a = world.take()
    world.b.take("s")
    world.b.yield_()
    a.take("s")
    assert (server.asleep, server.tell("state")["weights"]) == ([], "loaded")


# ---------------------------------------------------------------- what goes wrong


def test_n15_one_of_three_answers_with_an_error(world: ServerWorld) -> None:
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


def test_n15_one_of_three_never_answers(world: ServerWorld) -> None:
    only_hooks(world, "def")
    first, second, third = (world.serve(device=device) for device in "def")
    a = world.take()
    second.tell("fault", path="/sleep", effect=False, late=60)
    assert f"{second.url}: it could not be put to sleep within" in world.refused()
    assert (first.asleep, third.asleep) == ([], [])
    a.ask("s")
    a.wait_held(20)  # who cannot be evicted goes first, and has all its servers
    assert [server.asleep for server in world.servers] == [[]] * 3


def test_n15_yes_is_no_proof_that_memory_was_freed(world: ServerWorld) -> None:
    only_hooks(world)
    server = world.serve(traits={"frees": False})
    world.take()
    assert f"{SIZE} bytes are still in use on sim:d after its hooks" in world.refused()
    assert len(server.asked("/sleep")) == 1


def test_what_a_server_does_not_free_is_saved_from_outside(world: ServerWorld) -> None:
    world.stage.agent(hook_deadline="8")
    world.serve(traits={"frees": False})
    world.take()
    world.b.take("s")
    assert world.used() == 0
    assert world.stage.images()


def test_nothing_is_sent_to_another_process(world: ServerWorld) -> None:
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
def test_what_cannot_be_the_server_is_not_spoken_to(world: ServerWorld, url: str, words: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = probe.getsockname()[1]
    only_hooks(world)
    server = world.serve(options={"url": url.format(closed=closed)})
    world.take()
    assert words in world.refused()
    assert not server.asked("/sleep")


def test_a_server_that_is_described_wrongly_is_named_and_nothing_else_harmed(world: ServerWorld) -> None:
    agent = world.stage.agent()
    world.serve(options={"mode": "now"})
    world.take()
    world.b.take("s")
    assert "describes itself wrongly: 'now' is no mode of going to sleep" in agent.log()
    assert world.stage.images()  # saved from outside instead


def test_a_server_that_ends_makes_room(world: ServerWorld) -> None:
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


def test_a_new_agent_wakes_what_the_last_one_put_to_sleep(world: ServerWorld) -> None:
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


def test_a_new_agent_leaves_asleep_what_was_found_so(world: ServerWorld) -> None:
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
def test_an_agent_that_dies_while_a_server_falls_asleep(world: ServerWorld, kind: str) -> None:
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


def test_an_agent_that_dies_while_a_server_is_resumed(world: ServerWorld) -> None:
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
