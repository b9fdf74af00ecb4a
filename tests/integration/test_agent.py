"""The agent as a process, with a real server and real processes: turns, deaths, restarts, refusals."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.support.scripts import Scripts, connect
from tests.support.stage import AgentStage
from tests.support.wait import wait_until

A, B = random.Random(1).randbytes(20_000), random.Random(2).randbytes(30_000)


@pytest.fixture
def stage(server: EmbeddedServer, pool: str, tmp_path: Path) -> Iterator[AgentStage]:
    with connect(server.url) as client:
        made = AgentStage(Scripts(client, pool, clock=False), server.url, tmp_path)
        yield made
        made.close()


@pytest.fixture
def own_stage(
    own_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> Iterator[tuple[AgentStage, EmbeddedServer]]:
    """A stage whose server the test may stop, kill and start again."""
    server = own_server(appendonly=True)
    with connect(server.url) as client:
        made = AgentStage(Scripts(client, "p", clock=False), server.url, tmp_path)
        yield made, server
        made.close()


# ---------------------------------------------------------------- turns


def test_state_goes_out_and_comes_back(stage: AgentStage) -> None:
    stage.agent()
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    a.yield_()
    b.take("s")
    stage.write(B)
    assert stage.report()["saved"] == ["a"]
    b.yield_()
    a.take("s")
    assert stage.read(len(A)) == A
    assert stage.slice().holder.run == "a"  # type: ignore[union-attr]
    assert a.again().moved
    ready = stage.world.events("ready")
    assert [int(event["bytes"]) for event in ready] == [0, len(A), len(A) + len(B)]
    assert float(ready[-1]["seconds"]) > 0


def test_a_run_that_comes_back_moves_nothing(stage: AgentStage) -> None:
    stage.agent()
    a = stage.run("a")
    a.take("s")
    stage.write(A)
    a.yield_()
    a.take("s")
    assert not a.again().moved
    assert not stage.record().moves


def test_several_slices_switch_side_by_side(stage: AgentStage) -> None:
    stage.agent(slices={"s": "sim:d", "t": "sim:e,sim:f"})
    a, b = stage.run("a"), stage.run("b")
    a.take("s", "t")
    for device in "def":
        stage.write(A, device)
    a.yield_()
    b.take("s", "t")
    assert [stage.device(device).used for device in "def"] == [0, 0, 0]
    b.yield_()
    a.take("s", "t")
    assert [stage.read(len(A), device) for device in "def"] == [A, A, A]


def test_a_slice_on_two_nodes_begins_when_both_are_ready(stage: AgentStage) -> None:
    stage.declare("s", {"n1": ["sim:d"], "n2": ["sim:d"]})
    stage.agent("n1")
    other = stage.agent("n2")
    wait_until(lambda: not stage.slice().settling)
    other.stop()
    a, b = stage.run("a"), stage.run("b")
    a.register("s")
    a.ask("s")
    wait_until(lambda: stage.report("n1").get("loaded") == ["a"])
    assert a.again().outcome != "HELD"
    stage.agent("n2")
    a.wait_held()
    stage.write(A, node="n2")
    a.yield_()
    b.take("s")
    assert (stage.report("n1")["loaded"], stage.report("n2")["saved"]) == (["b"], ["a"])


# ---------------------------------------------------------------- deaths


def test_a_killed_holder_makes_room_within_a_second(stage: AgentStage) -> None:
    stage.agent(beat="5", silent="20")
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    b.register("s")
    b.ask("s")
    begun = time.monotonic()
    a.kill()
    b.wait_held()
    assert time.monotonic() - begun < 1.0
    assert a.state == "holder_died"
    assert (stage.device().used, stage.images()) == (0, [])


def test_what_is_saved_of_a_run_that_dies_is_dropped(stage: AgentStage) -> None:
    stage.agent()
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    a.yield_()
    b.take("s")
    assert len(stage.images()) == 1
    a.kill()
    wait_until(lambda: not stage.images() and stage.report()["saved"] in ([], {}))
    assert stage.slice().holder.run == "b"  # type: ignore[union-attr]


def test_a_run_is_killed_where_that_is_allowed(stage: AgentStage) -> None:
    stage.declare("s", {"n1": ["sim:d"]}, fallback="hooks,kill")
    stage.agent()
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    a.yield_()
    b.take("s")
    assert a.child.wait(5) == -signal.SIGKILL
    assert stage.device().used == 0


def test_a_process_that_is_not_certainly_the_runs_is_not_killed(stage: AgentStage) -> None:
    stage.declare("s", {"n1": ["sim:d"]}, fallback="kill")
    stage.agent()
    a, b = stage.run("a", {"SLICELOCK_JOB": "another"}), stage.run("b")
    a.take("s")
    stage.write(A)
    a.yield_()
    b.register("s")
    b.ask("s")
    wait_until(lambda: "n1" in stage.slice().blocked)
    assert "so it is not certain to be the run's" in stage.slice().blocked["n1"]["reason"]
    assert a.child.poll() is None
    a.ask("s")
    a.wait_held()  # who cannot be evicted goes first
    assert stage.read(len(A)) == A


# ---------------------------------------------------------------- hooks


HOOKS = ({"name": "TorchOffload", "slices": [], "self": False, "residue": 0},)


def test_hooks_are_commanded_through_redis(stage: AgentStage) -> None:
    stage.agent(fallback="hooks")
    a, b = stage.run("a", hooks=HOOKS), stage.run("b")
    a.take("s")
    a.yield_()
    b.register("s")
    b.ask("s")
    offload = a.obey()
    b.wait_held()
    assert (offload["what"], offload["slice"]) == ("offload", "s")
    b.yield_()
    a.ask("s")
    reload = a.obey()
    a.wait_held()
    assert reload["what"] == "reload"
    assert int(reload["n"]) == a.fences["s"]
    assert a.again().moved


def test_hooks_that_fail_block_the_slice_for_others_only(stage: AgentStage) -> None:
    stage.agent(fallback="hooks")
    a, b = stage.run("a", hooks=HOOKS), stage.run("b")
    a.take("s")
    a.yield_()
    b.register("s")
    b.ask("s")
    a.obey("failed", "out of host memory")
    wait_until(lambda: "n1" in stage.slice().blocked)
    assert "out of host memory" in stage.slice().blocked["n1"]["reason"]
    a.ask("s")
    assert a.obey()["what"] == "reload"
    a.wait_held()
    a.yield_()
    a.obey()  # tried again
    b.wait_held()


def test_hooks_that_do_not_answer_are_passed_over(stage: AgentStage) -> None:
    stage.agent(fallback="hooks,cuda", hook_deadline="0.5")
    a, b = stage.run("a", hooks=HOOKS), stage.run("b")
    a.take("s")
    stage.write(A)
    a.yield_()
    b.take("s")
    assert stage.report()["saved"] == ["a"]
    b.yield_()
    a.ask("s")
    wait_until(lambda: a.renew(done=a.k - 1).commands[0]["what"] == "reload")
    a.obey()
    a.wait_held()
    assert stage.read(len(A)) == A


def test_one_process_with_hooks_on_two_slices_gets_its_commands_one_by_one(stage: AgentStage) -> None:
    stage.agent(slices={"s": "sim:d", "t": "sim:e"}, fallback="hooks")
    a, b = stage.run("a", hooks=HOOKS), stage.run("b")
    a.take("s", "t")
    a.yield_()
    b.register("s", "t")
    b.ask("s", "t")
    commands = [a.obey(), a.obey()]
    b.wait_held()
    assert {command["slice"] for command in commands} == {"s", "t"}
    assert len({command["n"] for command in commands}) == 2


# ---------------------------------------------------------------- restarts


def test_a_clean_stop_leaves_a_running_job_alone(stage: AgentStage) -> None:
    agent = stage.agent()
    a = stage.run("a")
    a.take("s")
    stage.write(A)
    agent.stop()
    assert agent.process.returncode == 0
    assert "SIGTERM: stopping; running jobs are left alone" in agent.log()
    assert (a.child.poll(), a.again().outcome, stage.read(len(A))) == (None, "HELD", A)
    stage.agent()
    assert stage.report()["run"] == "a"
    a.yield_()
    b = stage.run("b")
    b.take("s")


def test_a_killed_agent_takes_up_where_it_was(stage: AgentStage) -> None:
    agent = stage.agent()
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    a.yield_()
    b.take("s")
    stage.kill(agent)
    a.ask("s")
    b.yield_()
    stage.agent()
    a.wait_held()
    assert stage.read(len(A)) == A


def test_an_agent_killed_again_and_again_loses_nothing(stage: AgentStage) -> None:
    agent = stage.agent()
    runs = {name: stage.run(name) for name in "ab"}
    contents: dict[str, bytes] = {}
    rng = random.Random(7)
    for turn in range(12):
        name = "ab"[turn % 2]
        run = runs[name]
        run.register("s")
        run.ask("s")
        until = time.monotonic() + rng.random() * 0.02
        wait_until(lambda until=until: time.monotonic() > until)
        stage.kill(agent)
        agent = stage.agent()
        run.wait_held()
        assert stage.read(len(contents.get(name, b""))) == contents.get(name, b"")
        contents[name] = rng.randbytes(25_000)
        stage.write(contents[name])
        run.yield_()
    wrong = [what for what in stage.record().violations() if not what.startswith("stray")]
    assert wrong == []


def test_a_holder_that_died_while_the_agent_was_away_is_noticed(stage: AgentStage) -> None:
    agent = stage.agent()
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    stage.kill(agent)
    a.kill()
    b.register("s")
    b.ask("s")
    stage.agent()
    b.wait_held()
    assert a.state == "holder_died"


def test_after_a_reboot_nothing_is_loaded_but_fences_go_on(stage: AgentStage) -> None:
    agent = stage.agent()
    a = stage.run("a")
    a.take("s")
    stage.write(A)
    top = a.fences["s"]
    agent.stop()
    path = Path(stage.env()["SLICELOCK_STATE_DIR"]) / f"{stage.world.keys.pool}.n1.journal"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE name = 'boots'", (json.dumps(["an earlier boot"]),))
    stage.agent()
    assert stage.device().used == 0
    report = stage.report()
    assert (report["run"], int(report["top"])) == ("", top)
    a.yield_()
    b = stage.run("b")
    b.take("s")
    assert b.fences["s"] > top


# ---------------------------------------------------------------- redis


def test_a_turn_outlives_a_restart_of_redis(own_stage: tuple[AgentStage, EmbeddedServer]) -> None:
    stage, server = own_stage
    stage.agent()
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    stage.write(A)
    server.stop()
    server.start()
    wait_until(lambda: stage.world.picture().epoch == 2 and a.beats()["state"] == "held")
    wait_until(lambda: not stage.slice().settling)
    assert stage.slice().holder.run == "a"  # type: ignore[union-attr]
    a.yield_()
    b.take("s")
    b.yield_()
    a.take("s")
    assert stage.read(len(A)) == A


def test_a_hung_redis_is_waited_for(own_stage: tuple[AgentStage, EmbeddedServer]) -> None:
    stage, server = own_stage
    agent = stage.agent(store_timeout="0.5")
    a, b = stage.run("a"), stage.run("b")
    a.take("s")
    os.kill(server.pid, signal.SIGSTOP)
    wait_until(lambda: "Turns go on" in agent.log())
    os.kill(server.pid, signal.SIGCONT)
    a.yield_()
    b.take("s")


def test_a_slice_that_redis_lost_is_declared_again(stage: AgentStage) -> None:
    stage.agent()
    wait_until(lambda: stage.slice().nodes)
    stage.world.client.delete(stage.world.keys.slices, stage.world.keys.slice("s"))
    wait_until(lambda: stage.world.client.sismember(stage.world.keys.slices, "s"))
    stage.run("a").take("s")


# ---------------------------------------------------------------- who may start


def test_it_says_what_it_serves(stage: AgentStage) -> None:
    stage.agent(slices={"s": "sim:d", "t": "sim:e,sim:f"})
    assert {one.name: dict(one.nodes) for one in stage.world.picture().slices} == {
        "s": {"n1": ("sim:d",)},
        "t": {"n1": ("sim:e", "sim:f")},
    }


def test_a_slice_may_be_declared_already_with_several_nodes(stage: AgentStage) -> None:
    stage.declare("s", {"n1": ["sim:d"], "other": ["sim:x"]}, fallback="hooks")
    stage.agent()
    assert set(stage.slice().nodes) == {"n1", "other"}
    assert stage.slice().settings == {"fallback": "hooks"}


def test_devices_of_a_free_slice_may_change(stage: AgentStage) -> None:
    stage.agent().stop()
    stage.agent(slices={"s": "sim:e"})
    assert stage.slice().nodes == {"n1": ("sim:e",)}


def left_behind(stage: AgentStage) -> list[str]:
    return sorted(str(path.relative_to(stage.folder)) for path in stage.folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("slices", "declared", "code", "says"),
    [
        (["s=tpu:0"], {}, 1, "no backend here can move state on device 'tpu:0'"),
        (["s=sim:d", "t=tpu:1"], {}, 1, "no backend here can move state on device 'tpu:1'"),
        (["s"], {}, 3, "names no devices"),
        ([], {}, 3, "no slice to serve"),
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
    stage: AgentStage, slices: list[str], declared: dict[str, dict[str, list[str]]], code: int, says: str
) -> None:
    for name, nodes in declared.items():
        stage.declare(name, nodes)
    before = stage.world.dump()
    options = [word for text in slices for word in ("--slice", text)]
    exit_code, said = stage.try_agent(*options)
    assert (exit_code, len(said.splitlines())) == (code, 1), said
    assert says in said
    assert "Traceback" not in said
    assert left_behind(stage) == []
    assert stage.world.dump() == before


@pytest.mark.parametrize(
    ("facts", "code", "says"),
    [
        ({"redis_url": "redis://127.0.0.1:1"}, 4, "cannot be reached"),
        ({"redis_url": ""}, 3, "SLICELOCK_REDIS_URL is not set"),
        ({"redis_url": "http://x"}, 3, "is not a Redis URL"),
        ({"node": "bad name"}, 3, "'bad name' is not allowed"),
        ({"fallback": "magic"}, 3, "SLICELOCK_FALLBACK"),
        ({"beat": "0.3", "silent": "0.4"}, 3, "must be at most half of"),
        ({"state_dir": "/proc/nothing"}, 3, "--state-dir"),
        ({"sim_dir": "/proc/nothing"}, 3, "Device sim:d cannot be held"),
    ],
)
def test_settings_that_make_no_sense_are_named(
    stage: AgentStage, facts: dict[str, str], code: int, says: str
) -> None:
    exit_code, said = stage.try_agent("--slice", "s=sim:d", **facts)
    assert (exit_code, len(said.splitlines())) == (code, 1), said
    assert says in said
    assert left_behind(stage) == []


def test_another_schema_is_named(stage: AgentStage) -> None:
    stage.world.client.hset(stage.world.keys.meta, "schema", "99")
    exit_code, said = stage.try_agent("--slice", "s=sim:d")
    assert exit_code == 4
    assert "schema 99" in said
    assert left_behind(stage) == []


def test_a_wrong_password_is_named_and_not_shown(
    own_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    server = own_server(options={"requirepass": "right"})
    with connect(server.url.replace("unix://", "unix://:right@")) as client:
        stage = AgentStage(
            Scripts(client, "p", clock=False), server.url.replace("unix://", "unix://:wrong@"), tmp_path
        )
        exit_code, said = stage.try_agent("--slice", "s=sim:d")
    assert exit_code == 3
    assert "password" in said
    assert "wrong" not in said


def test_a_device_belongs_to_one_slice_over_all_pools(
    stage: AgentStage, make_pool: Callable[[], str]
) -> None:
    stage.agent()
    exit_code, said = stage.try_agent(
        "--slice", "u=sim:d", pool=make_pool(), state_dir=str(stage.folder / "other")
    )
    assert exit_code == 3
    assert f"pool {stage.world.keys.pool}, slice s" in said


def test_a_node_has_one_agent(stage: AgentStage) -> None:
    stage.agent()
    exit_code, said = stage.try_agent("--slice", "t=sim:e")
    assert exit_code == 3
    assert "Another agent (process" in said


def test_a_restarted_agent_waits_for_redis(own_stage: tuple[AgentStage, EmbeddedServer]) -> None:
    stage, server = own_stage
    stage.agent().stop()
    server.stop()
    with stage.start_agent("--slice", "s=sim:d") as agent:
        assert agent.stderr is not None
        assert b"Waiting for it." in agent.stderr.readline()
        server.start()
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"slicelock-agent ready: node n1 slices s\n"
        stage.run("a").take("s")
        agent.terminate()


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


def test_false_registrations_harm_nobody(stage: AgentStage) -> None:
    agent = stage.agent()
    a = stage.run("a")
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
        stage.world.scripts.call("register", register.argv())
    beaten = stage.slice().since_ms
    b = stage.run("b")
    a.yield_()
    b.take("s")
    assert agent.process.poll() is None
    assert beaten >= 0
