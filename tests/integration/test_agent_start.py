"""Starting an agent: what it serves, what it refuses and why, and that a refusal leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.local_agent import LocalAgent
from tests.support.proxy import Fault, Proxy, script_call
from tests.support.scripts import Scripts, connect
from tests.support.stage import AgentStage
from tests.support.stored import edit
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server


def test_it_says_what_it_serves(agents: AgentStage) -> None:
    agents.agent(slices={"s": "sim:d", "t": "sim:e,sim:f"})
    assert {one.name: dict(one.nodes) for one in agents.world.picture().slices} == {
        "s": {"n1": ("sim:d",)},
        "t": {"n1": ("sim:e", "sim:f")},
    }


def test_a_slice_may_be_declared_already_with_several_nodes(agents: AgentStage) -> None:
    agents.declare("s", {"n1": ["sim:d"], "other": ["sim:x"]}, fallback="hooks")
    agents.agent()
    assert set(agents.slice().nodes) == {"n1", "other"}
    assert agents.slice().settings == {"fallback": "hooks"}


def test_devices_of_a_free_slice_may_change(agents: AgentStage) -> None:
    agents.agent().stop()
    agents.agent(slices={"s": "sim:e"})
    assert agents.slice().nodes == {"n1": ("sim:e",)}


def test_what_says_that_a_device_is_taken_does_not_age(agents: AgentStage) -> None:
    agents.agent()
    [held] = agents.folder.rglob("d.lock")
    os.utime(held, (1, 1))
    wait_until(lambda: held.stat().st_mtime > 1, what="the file is touched")


def left_behind(agents: AgentStage) -> list[str]:
    return sorted(str(path.relative_to(agents.folder)) for path in agents.folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("slices", "declared", "code", "says"),
    [
        (["s=tpu:0"], {}, 1, "no backend here can move state on device 'tpu:0'"),
        (["s=sim:d", "t=tpu:1"], {}, 1, "no backend here can move state on device 'tpu:1'"),
        (["s"], {}, 2, "names no devices"),
        ([], {}, 2, "no slice to serve"),
        (["s=sim:../../x/y"], {}, 2, "device name '../../x/y' is not allowed"),
        (["s=sim:d", "t=sim:a b"], {}, 2, "device name 'a b' is not allowed"),
        (["s=sim:d"], {"s": {}}, 3, "Slice s is declared without nodes"),
        (["s=sim:d"], {"s": {"n2": ["sim:d"]}}, 3, "Slice s is declared for n2, not for node n1"),
        (
            ["s=sim:d"],
            {"s": {"n1": ["sim:e"], "n2": ["sim:e"]}},
            3,
            "Slice s is declared with sim:e on node n1",
        ),
        (["s=sim:d"], {"t": {"n1": ["sim:d"]}}, 3, "sim:d of node n1 is in slice t"),
    ],
)
def test_an_agent_that_cannot_serve_says_why_and_leaves_nothing(
    agents: AgentStage, slices: list[str], declared: dict[str, dict[str, list[str]]], code: int, says: str
) -> None:
    for name, nodes in declared.items():
        agents.declare(name, nodes)
    before = stored(agents)
    options = [word for text in slices for word in ("--slice", text)]
    exit_code, said = agents.try_agent(*options)
    assert (exit_code, len(said.splitlines())) == (code, 1), said
    assert says in said
    assert "Traceback" not in said
    assert left_behind(agents) == []
    assert stored(agents) == before


def stored(agents: AgentStage) -> dict[str, Any]:
    """What Redis has, but for timers that may run out while an agent starts."""
    found = agents.world.dump()
    timers = [one for one in found.get("deadlines", []) if not one[0].startswith(b"settle|")]
    return found | {"deadlines": timers}


@pytest.mark.parametrize(
    ("facts", "code", "says"),
    [
        ({"redis_url": "redis://127.0.0.1:1"}, 4, "cannot be reached"),
        ({"redis_url": ""}, 3, "SLICELOCK_REDIS_URL is not set"),
        ({"redis_url": "http://x"}, 3, "is not a Redis URL"),
        ({"node": "bad name"}, 3, "'bad name' is not allowed"),
        ({"fallback": "magic"}, 3, "SLICELOCK_FALLBACK"),
        ({"beat": "0.3", "silent": "0.4"}, 3, "must be at most half of"),
        ({"silent": "86400"}, 3, "SLICELOCK_SILENT: 86400 s"),
        ({"state_dir": "/proc/nothing"}, 3, "--state-dir"),
        ({"state_dir": f"/tmp/{'n' * 300}"}, 3, "File name too long. Name a folder"),
        ({"sim_capacity": "9" * 20}, 1, "File too large. Free some"),
        ({"sim_dir": "/proc/nothing"}, 3, "Device sim:d cannot be held"),
        ({"sim_dir": f"/dev/shm/{'n' * 300}"}, 3, "File name too long. Let the agent's user write"),
    ],
)
def test_settings_that_make_no_sense_are_named(
    agents: AgentStage, facts: dict[str, str], code: int, says: str
) -> None:
    exit_code, said = agents.try_agent("--slice", "s=sim:d", **facts)
    assert (exit_code, len(said.splitlines())) == (code, 1), said
    assert says in said
    assert left_behind(agents) == []


def test_a_database_that_the_server_lacks_is_named(agents: AgentStage) -> None:
    """Also by an agent that has served before, which waits for a Redis that is only away."""
    agents.agent().stop()
    exit_code, said = agents.try_agent("--slice", "s=sim:d", redis_url=f"{agents.url}?db=99")
    assert (exit_code, len(said.splitlines())) == (3, 1), said
    assert "no such database" in said


def test_another_schema_is_named(agents: AgentStage) -> None:
    edit(agents.world.client, agents.world.keys.meta, schema="99")
    exit_code, said = agents.try_agent("--slice", "s=sim:d")
    assert exit_code == 1
    assert "schema 99" in said
    assert left_behind(agents) == []


def test_a_wrong_password_is_named_and_not_shown(
    own_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    server = own_server(options={"requirepass": "right"})
    with connect(server.url.replace("unix://", "unix://:right@")) as client:
        agents = AgentStage(
            Scripts(client, "p", clock=False), server.url.replace("unix://", "unix://:wrong@"), tmp_path
        )
        exit_code, said = agents.try_agent("--slice", "s=sim:d")
    assert exit_code == 3
    assert "password" in said
    assert "wrong" not in said


def test_a_device_belongs_to_one_slice_over_all_pools(
    agents: AgentStage, make_pool: Callable[[], str]
) -> None:
    agents.agent()
    exit_code, said = agents.try_agent(
        "--slice", "u=sim:d", pool=make_pool(), state_dir=str(agents.folder / "other")
    )
    assert exit_code == 3
    assert f"pool {agents.world.keys.pool}, slice s" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_agent_that_is_stopped_leaves_nothing_in_shared_memory(
    agents: AgentStage, pool: str, number: signal.Signals
) -> None:
    """In its own folder, which nobody has chosen. Others of this user may use it at the same time."""
    env = agents.env()
    del env["SLICELOCK_SIM_DIR"]
    folder = Path(f"/dev/shm/slicelock-{os.geteuid()}")
    with LocalAgent({"s": f"sim:{pool}"}, env) as agent:
        assert (folder / f"{pool}.mem").exists()
        agent.process.send_signal(number)
        assert agent.process.wait(20) == 0
    assert not folder.exists() or list(folder.iterdir())
    assert not list(folder.glob(f"{pool}*"))


def test_a_node_has_one_agent(agents: AgentStage) -> None:
    agents.agent()
    exit_code, said = agents.try_agent("--slice", "t=sim:e")
    assert exit_code == 3
    assert "Another agent (process" in said


def test_a_restarted_agent_waits_for_redis(own_agents: tuple[AgentStage, EmbeddedServer]) -> None:
    agents, server = own_agents
    agents.agent().stop()
    server.stop()
    with agents.start_agent("--slice", "s=sim:d") as agent:
        assert agent.stderr is not None
        assert b"Waiting for it." in agent.stderr.readline()
        server.start()
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"slicelock-agent ready: node n1 slices s\n"
        agents.run("a").take("s")
        agent.terminate()


def test_a_redis_that_goes_away_while_an_agent_starts_is_waited_for(agents: AgentStage) -> None:
    """Its address was right; an agent that has served before has jobs that wait for it."""
    agents.agent().stop()
    with Proxy(agents.url) as proxy:
        proxy.fault(Fault.LOSE_CALL, script_call("status"))
        proxy.fault(Fault.LOSE_CALL, script_call("status"), skip=1)
        proxy.fault(Fault.LOSE_CALL, lambda words: words[0] == b"SUBSCRIBE")
        agent = agents.agent(redis_url=proxy.url)
        assert proxy.hits == 3
        agents.run("a").take("s")
        agent.stop()
