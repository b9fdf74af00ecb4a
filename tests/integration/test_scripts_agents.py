"""What agents learn of runs and processes, and hook commands with their answers."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from redis.exceptions import ResponseError

from slicelock import wire
from tests.support.scripts import START_MS
from tests.support.world import SILENT_MS, Agent, Ear, Shown, World, ready

pytestmark = pytest.mark.usefixtures("slices_of_nodes")


# ---------------------------------------------------------------- agents and runs


def test_agents_get_the_processes_of_runs_they_have_to_know(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.hooks = ({"name": "torch"},)
    world.scripts.advance(500)
    r1.register("a", "b")
    assert n1.beat().runs == {}
    r1.ask("a")
    world.scripts.advance(1_500)
    told = n1.beat().runs["r1"]
    assert told["job"] == "job-r1"
    facts = told["processes"][r1.process]
    assert (int(facts["uid"]), list(facts["slices"])) == (1000, ["a", "b"])
    assert list(facts["hooks"]) == [{"name": "torch"}]
    assert int(facts["heard_ms"]) == 1_500
    n1.known = {"r1": told["rev"]}
    assert n1.beat().runs == {}
    r1.generation = 1
    r1.register("a")
    assert len(n1.beat().runs["r1"]["processes"]) == 2


def test_agents_get_the_news_of_runs_that_hold_nothing(world: World, n1: Agent) -> None:
    """A saved run's process may exit: the agent that keeps its state must learn of new and gone processes."""
    r1 = world.member("r1")
    r1.register("a")
    r1.hold("a")
    n1.known = {"r1": n1.beat().runs["r1"]["rev"]}
    r1.yield_()
    assert n1.beat().runs == {}
    r1.register("a", gone=True)
    assert n1.beat().runs["r1"]["processes"] in ({}, [])


def test_a_registration_after_the_end_of_its_process_changes_nothing(world: World, n1: Agent) -> None:
    """An agent has seen it end, so no other will ever say so again; one that says so itself may come back."""
    r1, r2 = world.member("r1"), world.member("r2")
    r1.register("a")
    r2.register("a")
    n1.beat(exits=[{"run": "r1", "process": r1.process}])
    r2.register("a", gone=True)
    before = world.dump()
    r1.register("a")
    assert world.dump() == before
    r2.register("a")
    r1.generation = 1
    r1.register("a")
    listed = [world.client.smembers(world.keys.procs(run)) for run in ("r1", "r2")]
    assert listed == [{r1.process.encode()}, {r2.process.encode()}]


def test_what_a_failover_forgot_and_another_replaced_is_news(world: World, n1: Agent) -> None:
    """A revision is never given out twice: the agent would take other processes for those that it knows."""
    r1 = world.member("r1")
    backup = world.scripts.backup()
    r1.register("a")
    n1.known = {"r1": 0}
    n1.known = {"r1": n1.beat().runs["r1"]["rev"]}
    world.new_epoch(backup)
    world.scripts.jump(1_000)
    r1.generation = 1
    r1.register("a")
    assert list(n1.beat().runs["r1"]["processes"]) == [r1.process]


def test_a_beat_says_which_of_its_slices_are_not_declared(world: World, n1: Agent) -> None:
    from tests.support.world import Shown

    n1.shown["new"] = Shown()
    assert not int(n1.wanted()["new"]["known"])
    assert int(n1.wanted()["a"]["known"])


def test_an_agent_without_slices_is_known_too(world: World) -> None:
    world.agent("n7").beat()
    assert [node.name for node in world.picture().nodes] == ["n1", "n2", "n7"]


def test_wanted_carries_the_slices_settings(world: World) -> None:
    world.declare("d", "n1", fallback=["hooks", "kill"])
    settings = json.loads(world.agent("n1").wanted()["d"]["settings"])
    assert settings == {"fallback": ["hooks", "kill"]}


N = START_MS * 1024 + 5  # commands are numbered by fence: more digits than Lua prints by itself


def command(run: str, process: str, n: int = N, what: str = "offload") -> dict[str, object]:
    return {"run": run, "process": process, "n": n, "what": what, "slice": "a"}


def answer(n: int = N, what: str = "offload", outcome: str = "done") -> dict[str, object]:
    return {"n": n, "what": what, "outcome": outcome, "reason": "", "bytes": 1 << 40, "seconds": 0.5}


def test_hook_commands_go_to_the_process_and_answers_come_back(world: World, n1: Agent, ear: Ear) -> None:
    r1 = world.member("r1")
    r1.register("a")
    ear.heard()
    n1.beat(commands=[command("r1", r1.process)])
    assert ("run:r1", "command") in ear.heard()
    for _ in range(2):
        [got] = r1.renew(done=0).commands
        assert (int(got["n"]), got["what"], got["slice"]) == (N, "offload", "a")
    assert r1.renew(done=0, answers=[answer()]).commands in ([], ())
    assert ("node:n1", "command r1") in ear.heard()
    n1.known = {"r1": 0}
    seen = n1.beat().runs["r1"]["processes"][r1.process]["answer"]
    assert (int(seen["n"]), seen["what"], seen["outcome"]) == (N, "offload", "done")
    assert (int(seen["bytes"]), float(seen["seconds"])) == (1 << 40, 0.5)


def test_every_agent_hears_of_commands_and_answers(world: World, n1: Agent, n2: Agent) -> None:
    """One process at a time obeys one agent: the others must see that it is taken."""
    r1 = world.member("r1")
    r1.register("b")
    n2.known = {"r1": 0}
    n2.known = {"r1": n2.beat().runs["r1"]["rev"]}
    n1.beat(commands=[command("r1", r1.process)])
    told = n2.beat().runs["r1"]
    assert int(told["processes"][r1.process]["command"]["n"]) == N
    n2.known = {"r1": told["rev"]}
    assert n2.beat().runs in ({}, [])
    r1.renew(done=0, answers=[answer()])
    assert "answer" in n2.beat().runs["r1"]["processes"][r1.process]


def test_an_agent_sees_which_command_is_pending(world: World, n1: Agent) -> None:
    """Its successor after a restart goes on from there."""
    r1 = world.member("r1")
    r1.register("a")
    n1.beat(commands=[command("r1", r1.process)])
    n1.known = {"r1": 0}
    seen = n1.beat().runs["r1"]["processes"][r1.process]["command"]
    assert (int(seen["n"]), seen["what"], seen["slice"]) == (N, "offload", "a")


def test_a_repeated_command_is_not_new_and_a_repeated_answer_neither(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.register("a")
    n1.beat(commands=[command("r1", r1.process)])
    r1.renew(done=0, answers=[answer()])
    before = world.dump()
    n1.beat(commands=[command("r1", r1.process)])
    r1.renew(done=0, answers=[answer()])
    assert world.dump() == before
    assert r1.renew(done=0).commands in ([], ())


def test_the_next_command_replaces_the_answer(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.register("a")
    n1.beat(commands=[command("r1", r1.process)])
    r1.renew(done=0, answers=[answer()])
    n1.beat(commands=[command("r1", r1.process, N + 1, "reload")])
    [got] = r1.renew(done=0, answers=[answer()]).commands
    assert (int(got["n"]), got["what"]) == (N + 1, "reload")


def test_an_answer_to_another_command_is_not_taken(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.register("a")
    n1.beat(commands=[command("r1", r1.process)])
    before = world.dump()
    r1.renew(done=0, answers=[answer(N + 1), answer(N - 1), answer(what="reload")])
    assert world.dump() == before


def test_commands_of_the_past_change_nothing(world: World, n1: Agent) -> None:
    """A late beat of an agent that hung must not put an old command into the place of the present one."""
    r1 = world.member("r1")
    r1.register("a")
    n1.beat(commands=[command("r1", r1.process)])
    before = world.dump()
    n1.beat(commands=[command("r1", r1.process, N - 1, "reload")])
    assert world.dump() == before
    r1.renew(done=0, answers=[answer()])
    before = world.dump()
    n1.beat(commands=[command("r1", r1.process, N - 1, "reload")])
    assert world.dump() == before


def test_a_command_to_nobody_leaves_nothing(world: World, n1: Agent) -> None:
    before = world.dump()
    n1.beat(commands=[command("ghost", "p")])
    assert world.dump() == before


@pytest.mark.parametrize("process", ["a#heard", "", "x" * 201, "a b", "a|b"])
def test_what_is_no_process_identity_is_not_registered(world: World, process: str) -> None:
    """A key is made of it."""
    assert world.run(wire.Register("r1", "j", process, 1, ("a",), [])).outcome == "OK"
    assert "procs:r1" not in world.dump()


def test_viewers_see_how_far_a_step_is(world: World, n1: Agent) -> None:
    command = n1.beat_command()
    progress = {"step": "evicting", "run": "r1", "bytes": 8, "moved": 3, "seconds": 0.5}
    command.report["slices"]["a"]["progress"] = progress
    world.run(command)
    [node] = [one for one in world.picture().nodes if one.name == "n1"]
    assert node.reports["a"]["progress"] == progress
    n1.beat()
    [node] = [one for one in world.picture().nodes if one.name == "n1"]
    assert "progress" not in node.reports["a"]


def test_a_second_agent_of_a_node_does_nothing_while_the_first_is_heard(world: World, n1: Agent) -> None:
    world.member("r1").hold("a")
    world.scripts.advance(700)
    second = Agent(world, "n1", agent="boot2:j2@other")
    second.shown["a"] = Shown()
    before = world.dump()
    reply = second.beat(exits=[{"run": "r1", "process": world.member("r1").process}])
    assert (reply.outcome, reply.by, reply.heard_ms, reply.wanted) == ("OTHER", n1.agent, 700, {})
    assert world.dump() == before
    world.scripts.advance(SILENT_MS - 700)
    question = wire.Beat("n1", second.agent, "v", 0, {})
    assert world.run(question).outcome == "OTHER"
    assert second.beat().outcome == "OTHER"  # exactly at its limit it is not silent yet
    world.scripts.advance(1)
    assert world.run(question).outcome == "OK"
    assert world.record(world.keys.node("n1"))["agent"] == n1.agent  # to ask is not to beat
    assert second.beat().outcome == "OK"
    assert n1.beat().outcome == "OTHER"


def test_results_in_haste_are_taken_like_those_of_a_beat(world: World, n1: Agent) -> None:
    waiter = world.member("r1")
    waiter.ask("a")
    fence = int(n1.wanted()["a"]["fence"])
    others = wire.Results("n1", "boot2:j2@other", [ready("a", fence)])
    before = world.dump()
    assert world.run(others).by == n1.agent
    assert world.dump() == before
    mine = wire.Results("n1", n1.agent, [ready("a", fence), ready("a", fence - 1), ready("ghost", 1)])
    reply = world.run(mine)
    assert (reply.outcome, reply.epoch, reply.results) == ("OK", 1, ["OK", "STALE", "STALE"])
    assert world.state(waiter.id) == "held"
    assert world.run(mine).results == ["STALE"] * 3


def test_a_failure_in_haste_goes_where_it_belongs(world: World, n1: Agent) -> None:
    waiter = world.member("r1")
    waiter.ask("a")
    fence = int(n1.wanted()["a"]["fence"])
    failed = ready("a", fence, outcome="FAILED", what="refused", reason="no way", run="r1")
    assert world.run(wire.Results("n1", n1.agent, [failed])).results == ["OK"]
    assert world.state(waiter.id) == "failed"


def test_who_an_agent_is_does_not_depend_on_its_host(world: World, n1: Agent) -> None:
    """A container made anew has the same journal and boot, and another name."""
    n1.beat()
    again = Agent(world, "n1", agent=n1.agent.replace("@host", "@another"))
    assert again.beat().outcome == "OK"
    assert Agent(world, "n1", agent="boot:k@host").beat().outcome == "OTHER"


def test_a_goodbye_clears_who_the_nodes_agent_is_and_nothing_else(world: World, n1: Agent) -> None:
    world.member("r1").hold("a")
    goodbye = wire.Beat("n1", n1.agent, "", 0, {"ended": True})
    other = wire.Beat("n1", "boot2:j2@host", "", 0, {"ended": True})
    before = world.dump()
    assert world.run(other).outcome == "OTHER"
    assert world.dump() == before
    assert world.run(goodbye).outcome == "OK"
    node = dict(cast(dict[str, str], before["node:n1"]))
    assert node.pop("agent") == n1.agent
    assert world.dump() == before | {"node:n1": node}
    assert Agent(world, "n1", agent="boot2:j2@host").beat().outcome == "OK"
    assert n1.beat().outcome == "OTHER"
    assert world.run(wire.Beat("n9", "boot:j@host", "", 0, {"ended": True})).outcome == "OK"
    assert "node:n9" not in world.dump()


def refused(world: World, command: wire.ScriptCall[Any]) -> bool:
    """Whether a command is an error that leaves nothing behind, no event either."""
    before, events = world.dump(), world.events()
    with pytest.raises(ResponseError):
        world.run(command)
    return (world.dump(), world.events()) == (before, events)


@pytest.mark.parametrize("silent", [10**12, 60_001, -1, "nan", "inf", "1e3", "", "0x10"])
def test_nobody_makes_a_node_wait_for_long(world: World, silent: Any) -> None:
    assert refused(world, wire.Beat("n1", "boot:j@host", "v", silent, {}))


@pytest.mark.parametrize("node", ["", "a b/c", "x|y", "n" * 65])
def test_what_is_no_nodes_name_is_refused(world: World, node: str) -> None:
    assert refused(world, wire.Beat(node, "boot:j@host", "v", SILENT_MS, {}))
    assert refused(world, wire.Beat(node, "boot:j@host", "v", 0, {}))
    assert refused(world, wire.Results(node, "boot:j@host", []))


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": None},
        {"outcome": "maybe"},
        {"what": "evict", "reason": None},
        {"what": None},
        {"what": "x"},
        {"what": "evict", "run": None},
        {"bytes": "many"},
        {"steps": "x"},
        {"slice": None},
    ],
)
def test_a_result_that_makes_no_sense_leaves_nothing(world: World, n1: Agent, wrong: dict[str, Any]) -> None:
    world.member("r1").ask("a")
    fence = int(n1.wanted()["a"]["fence"])
    result = ready("a", fence, outcome="FAILED", what="refused", reason="no way", run="r1") | wrong
    assert refused(world, wire.Results("n1", n1.agent, [result]))
    assert refused(world, wire.Beat("n1", n1.agent, "v", SILENT_MS, {"results": [result]}))


@pytest.mark.parametrize(
    "report",
    [
        {"exits": [{"run": None, "process": "p"}]},
        {"commands": [{"run": "r1", "process": "p", "what": "offload", "slice": "a"}]},
        {"slices": {"a": {"k": None, "top": 0, "fence": 0}}},
        {"slices": {"a": {"k": 0, "top": 0, "fence": 0, "loaded": "r1"}}},
    ],
)
def test_a_report_that_makes_no_sense_leaves_nothing(world: World, n1: Agent, report: dict[str, Any]) -> None:
    n1.beat()
    world.scripts.advance(1)
    assert refused(world, wire.Beat("n1", n1.agent, "v", SILENT_MS, report))


@pytest.mark.parametrize(("name", "node"), [("", "n1"), ("a b", "n1"), ("d", ""), ("d", "a b/c")])
def test_names_that_are_not_allowed_are_not_declared(world: World, name: str, node: str) -> None:
    assert refused(world, wire.Declare(name, {node: ["sim:d"]}, {}))
