"""What the scripts write into the stream of events beside the transition itself."""

from __future__ import annotations

import json

import pytest

from tests.support.stage import AgentStage
from tests.support.wait import wait_until
from tests.support.world import World


@pytest.fixture(autouse=True)
def slices(request: pytest.FixtureRequest) -> None:
    """`a` on n1, `b` on n1 and n2, `c` without an agent; for tests of the scripts alone."""
    if "world" in request.fixturenames:
        world: World = request.getfixturevalue("world")
        world.declare("a", "n1")
        world.declare("b", "n1", "n2")
        world.declare("c")
        world.serve()


def test_declared_names_the_nodes(world: World) -> None:
    told = {event["slice"]: event.get("nodes") for event in world.events("declared")}
    assert told == {"a": "n1", "b": "n1 n2", "c": None}


@pytest.mark.parametrize("after", [1, 2**64 - 1])
def test_what_another_has_written_with_the_last_ids_stops_nothing(world: World, after: int) -> None:
    """Above the last id of all, Redis takes no event: the stream begins anew."""
    world.client.xadd(world.keys.events, {"type": "x"}, id=f"{2**64 - 1}-{after}")
    r1 = world.member("r1")
    r1.hold("a", "c")
    assert r1.yield_().outcome == "YIELDED"
    assert [one["type"] for one in world.events() if one.get("run") == "r1"][-2:] == ["held", "ended"]


def test_another_kind_of_key_in_place_of_the_stream_stops_nothing(world: World) -> None:
    world.client.set(world.keys.events, "x")
    world.member("r1").hold("a")
    assert world.events("held")


def test_held_names_the_fences_in_the_order_of_the_slices(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a", "b", "c")
    [event] = world.events("held")
    assert event["slices"].split() == ["a", "b", "c"]
    assert event["fences"].split() == [str(r1.fences[name]) for name in ("a", "b", "c")]


def test_queued_tells_how_long_the_members_were_gathering(world: World) -> None:
    world.member("r1").hold("c")
    first, second = (world.member("r2", member, of=2) for member in "01")
    first.ask("c", priority=3)
    world.scripts.advance(2_500)
    second.ask("c", priority=3)
    [event] = world.events("queued")
    assert (event["run"], event["waited_ms"], event["priority"]) == ("r2", "2500", "3")


def test_a_wait_that_came_to_nothing_is_told_with_its_length(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("c")
    r2.ask("c")
    world.scripts.advance(1_500)
    r2.cancel(why="enough")
    r1.yield_()
    cancelled, yielded = world.events("ended")
    assert (cancelled["waited_ms"], "held_ms" in cancelled) == ("1500", False)
    assert (yielded["held_ms"], "waited_ms" in yielded) == ("1500", False)


def test_a_request_cancelled_before_it_came_has_waited_for_no_time(world: World) -> None:
    world.member("r1").cancel(k=1)
    assert [event["waited_ms"] for event in world.events("ended")] == ["0"]


@pytest.mark.parametrize("outcome", ["READY", "FAILED"])
def test_the_steps_of_a_switch(world: World, outcome: str) -> None:
    world.member("r1").ask("a")
    step = {"step": "restore", "run": "r1", "way": "sim", "bytes": 24 << 30, "seconds": 0.512345}
    fence = int(world.agent("n1").wanted()["a"]["fence"])
    world.agent("n1").report("a", fence, outcome, what="evict", reason="no", steps=[step], busy=40.5)
    [event] = world.events("ready" if outcome == "READY" else "failed")
    assert json.loads(event["steps"]) == [step]
    assert event["busy"] == "40.5"


def test_a_switch_without_steps_has_none(world: World) -> None:
    world.member("r1").hold("a")
    [event] = world.events("ready")
    assert "steps" not in event and "busy" not in event


def test_the_steps_of_a_real_switch(agents: AgentStage) -> None:
    agents.agent()
    first, second = agents.run("r1"), agents.run("r2")
    first.take("s")
    agents.write(b"x" * 20_000)
    first.yield_()
    second.take("s")
    *_, event = wait_until(lambda: agents.world.events("ready"))
    told = {one["step"]: one for one in json.loads(event["steps"])}
    assert (told["snapshot"]["run"], told["snapshot"]["bytes"], told["snapshot"]["way"]) == (
        "r1",
        20_000,
        "sim",
    )
    assert told["snapshot"]["seconds"] > 0
