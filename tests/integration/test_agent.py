"""The agent as a process, with a real server and real processes: turns, deaths, restarts, refusals."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.support.stage import AgentStage
from tests.support.stored import edit
from tests.support.wait import wait_until

A, B = random.Random(1).randbytes(20_000), random.Random(2).randbytes(30_000)


# ---------------------------------------------------------------- turns


def test_state_goes_out_and_comes_back(agents: AgentStage) -> None:
    agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    b.take("s")
    agents.write(B)
    assert agents.report()["saved"] == ["a"]
    b.yield_()
    a.take("s")
    assert agents.read(len(A)) == A
    assert agents.slice().holder.run == "a"  # type: ignore[union-attr]
    assert a.again().moved
    ready = agents.world.events("ready")
    assert [int(event["bytes"]) for event in ready] == [0, len(A), len(A) + len(B)]
    assert float(ready[-1]["seconds"]) > 0


def test_a_run_that_comes_back_moves_nothing(agents: AgentStage) -> None:
    agents.agent()
    a = agents.run("a")
    a.take("s")
    agents.write(A)
    a.yield_()
    a.take("s")
    assert not a.again().moved
    assert not agents.record().moves


def test_several_slices_switch_side_by_side(agents: AgentStage) -> None:
    agents.agent(slices={"s": "sim:d", "t": "sim:e,sim:f"})
    a, b = agents.run("a"), agents.run("b")
    a.take("s", "t")
    for device in "def":
        agents.write(A, device)
    a.yield_()
    b.take("s", "t")
    assert [agents.device(device).used for device in "def"] == [0, 0, 0]
    b.yield_()
    a.take("s", "t")
    assert [agents.read(len(A), device) for device in "def"] == [A, A, A]


def test_a_slice_on_two_nodes_begins_when_both_are_ready(agents: AgentStage) -> None:
    agents.declare("s", {"n1": ["sim:d"], "n2": ["sim:d"]})
    agents.agent("n1")
    other = agents.agent("n2")
    wait_until(lambda: not agents.slice().settling)
    other.stop()
    a, b = agents.run("a"), agents.run("b")
    a.register("s")
    a.ask("s")
    wait_until(lambda: agents.report("n1").get("loaded") == ["a"])
    assert a.again().outcome != "HELD"
    agents.agent("n2")
    a.wait_held()
    agents.write(A, node="n2")
    a.yield_()
    b.take("s")
    assert (agents.report("n1")["loaded"], agents.report("n2")["saved"]) == (["b"], ["a"])


# ---------------------------------------------------------------- deaths


def test_a_killed_holder_makes_room_within_a_second(agents: AgentStage) -> None:
    agents.agent(beat="5", silent="20")
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    b.register("s")
    b.ask("s")
    begun = time.monotonic()
    a.kill()
    b.wait_held()
    assert time.monotonic() - begun < 1.0
    assert a.state == "holder_died"
    assert (agents.device().used, agents.images()) == (0, [])


def test_what_is_saved_of_a_run_that_dies_is_dropped(agents: AgentStage) -> None:
    agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    b.take("s")
    assert len(agents.images()) == 1
    a.kill()
    wait_until(lambda: not agents.images() and agents.report()["saved"] in ([], {}))
    assert agents.slice().holder.run == "b"  # type: ignore[union-attr]


def test_a_run_is_killed_where_that_is_allowed(agents: AgentStage) -> None:
    agents.declare("s", {"n1": ["sim:d"]}, fallback="hooks,kill")
    agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    b.take("s")
    assert a.child.wait(5) == -signal.SIGKILL
    assert agents.device().used == 0


def test_a_process_that_is_not_certainly_the_runs_is_not_killed(agents: AgentStage) -> None:
    agents.declare("s", {"n1": ["sim:d"]}, fallback="kill")
    agents.agent()
    a, b = agents.run("a", {"SLICELOCK_JOB": "another"}), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    b.register("s")
    b.ask("s")
    wait_until(lambda: "n1" in agents.slice().blocked)
    assert "so it is not certain to be the run's" in agents.slice().blocked["n1"]["reason"]
    assert a.child.poll() is None
    a.ask("s")
    a.wait_held()  # who cannot be evicted goes first
    assert agents.read(len(A)) == A


# ---------------------------------------------------------------- restarts


def test_a_clean_stop_leaves_a_running_job_alone(agents: AgentStage) -> None:
    agent = agents.agent()
    a = agents.run("a")
    a.take("s")
    agents.write(A)
    agent.stop()
    assert agent.process.returncode == 0
    assert "SIGTERM: stopping; running jobs are left alone" in agent.log()
    assert (a.child.poll(), a.again().outcome, agents.read(len(A))) == (None, "HELD", A)
    agents.agent()
    assert agents.report()["run"] == "a"
    a.yield_()
    b = agents.run("b")
    b.take("s")


def test_a_killed_agent_takes_up_where_it_was(agents: AgentStage) -> None:
    agent = agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    b.take("s")
    agents.kill(agent)
    a.ask("s")
    b.yield_()
    agents.agent()
    a.wait_held()
    assert agents.read(len(A)) == A


@pytest.mark.slow
@pytest.mark.one_server
def test_an_agent_killed_again_and_again_loses_nothing(agents: AgentStage) -> None:
    agent = agents.agent()
    runs = {name: agents.run(name) for name in "ab"}
    contents: dict[str, bytes] = {}
    rng = random.Random(7)
    for turn in range(12):
        name = "ab"[turn % 2]
        run = runs[name]
        run.register("s")
        run.ask("s")
        until = time.monotonic() + rng.random() * 0.02
        wait_until(lambda until=until: time.monotonic() > until)
        agents.kill(agent)
        agent = agents.agent()
        run.wait_held()
        assert agents.read(len(contents.get(name, b""))) == contents.get(name, b"")
        contents[name] = rng.randbytes(25_000)
        agents.write(contents[name])
        run.yield_()
    wrong = [what for what in agents.record().violations() if not what.startswith("stray")]
    assert wrong == []


def test_a_holder_that_died_while_the_agent_was_away_is_noticed(agents: AgentStage) -> None:
    agent = agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    agents.kill(agent)
    a.kill()
    b.register("s")
    b.ask("s")
    agents.agent()
    b.wait_held()
    assert a.state == "holder_died"


def test_after_a_reboot_nothing_is_loaded_but_fences_go_on(agents: AgentStage) -> None:
    agent = agents.agent()
    a = agents.run("a")
    a.take("s")
    agents.write(A)
    top = a.fences["s"]
    agent.stop()
    path = Path(agents.env()["SLICELOCK_STATE_DIR"]) / f"{agents.world.keys.pool}.n1.journal"
    with path.open("a") as file:
        file.write(json.dumps(["meta", "boots", ["an earlier boot"]]) + "\n")
    agents.agent()
    assert agents.device().used == 0
    report = agents.report()
    assert (report["run"], int(report["top"])) == ("", top)
    a.yield_()
    b = agents.run("b")
    b.take("s")
    assert b.fences["s"] > top


# ---------------------------------------------------------------- redis


def test_a_fence_of_the_far_future_that_no_node_has_admitted_is_forgotten(agents: AgentStage) -> None:
    """As Redis' clock leaves it behind that was days ahead and is right again."""
    agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    key, far = agents.world.keys.slice("s"), (int(time.time()) + 3 * 86_400) * 1_024_000
    edit(agents.world.client, key, fence=str(far), admitted=str(far))
    b.register("s")
    b.ask("s")
    wait_until(lambda: "more than a day ahead of this node's clock" in str(agents.slice().blocked))
    edit(agents.world.client, key, admitted=str(a.fences["s"]))
    b.wait_held()
    assert a.fences["s"] < b.fences["s"] <= (time.time() + 60) * 1_024_000
    b.yield_()
    a.take("s")
    assert agents.read(len(A)) == A


def test_a_turn_outlives_a_restart_of_redis(own_agents: tuple[AgentStage, EmbeddedServer]) -> None:
    agents, server = own_agents
    agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    server.stop()
    server.start()
    wait_until(lambda: agents.world.picture().epoch == 2 and a.beats()["state"] == "held")
    wait_until(lambda: not agents.slice().settling)
    assert agents.slice().holder.run == "a"  # type: ignore[union-attr]
    a.yield_()
    b.take("s")
    b.yield_()
    a.take("s")
    assert agents.read(len(A)) == A


def test_a_hung_redis_is_waited_for(own_agents: tuple[AgentStage, EmbeddedServer]) -> None:
    agents, server = own_agents
    agent = agents.agent(store_timeout="0.5")
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    os.kill(server.pid, signal.SIGSTOP)
    wait_until(lambda: "Turns go on" in agent.log())
    os.kill(server.pid, signal.SIGCONT)
    a.yield_()
    b.take("s")


def test_a_password_that_is_changed_is_an_outage_told_in_one_line(
    own_agents: tuple[AgentStage, EmbeddedServer],
) -> None:
    agents, _ = own_agents
    agent = agents.agent()
    a, client = agents.run("a"), agents.world.client
    a.take("s")
    client.config_set("requirepass", "new")
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    wait_until(lambda: "refuses the user or the password" in agent.log())
    wait_until(lambda: any(node.silent for node in agents.world.picture().nodes) or not a.again())
    client.config_set("requirepass", "")
    wait_until(lambda: not agents.slice().blocked)
    assert a.again().outcome == "HELD"
    a.yield_()
    assert agent.log().count("refuses the user or the password") == 1
    assert "Traceback" not in agent.log()


def test_a_slice_that_redis_lost_is_declared_again(agents: AgentStage) -> None:
    agents.agent()
    wait_until(lambda: agents.slice().nodes)
    agents.world.client.delete(agents.world.keys.slices, agents.world.keys.slice("s"))
    wait_until(lambda: agents.world.client.sismember(agents.world.keys.slices, "s"))
    agents.run("a").take("s")


# ---------------------------------------------------------------- what others write


FALSE = [
    "#",
    "x",
    "a#b",
    "::::",
    "boot:1:1:1:1",
    "\x00\x01",
    "é" * 40,
    "x#heard",
    "1:2:3:4#command",
    "x" * 100_000,
]


def test_false_registrations_harm_nobody(agents: AgentStage) -> None:
    agent = agents.agent()
    a = agents.run("a")
    a.take("s")
    boot, namespace, pid, start = a.process.split(":")
    false = [
        *FALSE,
        f"{boot}:{namespace}:1:1",
        f"{boot}:{namespace}:{agent.process.pid}:{start}",
        f"{boot}:9:{pid}:{start}",
    ]
    for process in false:
        register = wire.Register(
            "a", "j", process, 0, ("s",), [{"name": 3, "slices": 4, "self": "yes", "residue": "much"}]
        )
        agents.world.scripts.call("register", register.argv())
    beaten = agents.slice().since_ms
    b = agents.run("b")
    a.yield_()
    b.take("s")
    assert agent.process.poll() is None
    assert beaten >= 0
