"""Heartbeats: what they say, what they tell again, and what they must not do."""

from __future__ import annotations

import pytest

from slicelock import wire
from tests.support.world import World

pytestmark = pytest.mark.usefixtures("agentless_slices")


# ---------------------------------------------------------------- renew


def test_renew_of_something_unknown_is_unknown(world: World) -> None:
    r1 = world.member("r1")
    r1.k, r1.slices = 1, ("a",)
    assert r1.beats()["state"] == "UNKNOWN"
    assert world.state("r1/main/1") == ""


def test_renew_of_several_parts_answers_in_order(world: World) -> None:
    main, side = world.member("r1"), world.member("r1", lane="side")
    main.hold("a")
    side.ask("a")
    reply = main.renew(side.part(), main.part())
    assert [(part["lane"], part["state"]) for part in reply.parts] == [("side", "queued"), ("main", "held")]


def test_renew_answers_with_what_it_has_set_off(world: World) -> None:
    main, side = world.member("r1"), world.member("r1", lane="side")
    main.hold("a")
    assert side.ask("a").outcome == "QUEUED"
    [part] = main.renew(side.part(), done=1).parts
    assert part["state"] == "held"


def test_renew_tells_a_forgotten_yield(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    r1.renew(done=1)
    assert world.state("r1/main/1") == "yielded"
    assert r1.renew(done=1).parts == []
    assert r2.again().outcome == "HELD"


def test_renew_tells_forgotten_slices(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a", "b")
    r2.ask("a")
    r1.yielded = ("a",)
    assert r1.beats()["state"] == "held"
    assert r2.again().outcome == "HELD"
    assert world.slice("b").holder.id == r1.id  # type: ignore[union-attr]


def test_renew_changes_nothing_but_the_deadline(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    before = world.dump()
    r1.renew()
    assert world.dump() == before


def test_scenario_16_a_late_heartbeat_does_not_bring_the_turn_back(world: World) -> None:
    """The yield overtakes the heartbeat."""
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    late = r1.renew_command({"parts": [r1.part()]})
    r1.yield_()
    r2.hold("a")
    before = world.dump()
    reply: wire.RenewReply = world.run(late)
    assert reply.parts[0]["state"] == "LOST"
    assert world.dump() == before
