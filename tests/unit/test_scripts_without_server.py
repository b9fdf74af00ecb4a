"""The scripts keep to the portable part of Redis and Lua: they also run where there is no server at all."""

from __future__ import annotations

import fakeredis
import pytest

from slicelock import wire
from tests.support.scripts import START_MS, Scripts
from tests.support.world import LEASE_MS, World


@pytest.fixture
def world() -> World:
    made = World(Scripts(fakeredis.FakeRedis(), "nowhere"))
    made.declare("a", "n1")
    made.declare("b", "n1", "n2")
    made.declare("p")
    made.serve()
    return made


def test_turns_are_handed_over_in_order(world: World) -> None:
    runs = [world.member(f"r{i}") for i in range(3)]
    for run in runs:
        run.ask("a", "b")
    fences: list[int] = []
    for run in runs:
        world.serve()
        fences.append(run.again().fences["a"])
        assert run.yield_().outcome == "YIELDED"
    assert fences == sorted(set(fences))
    assert [event["outcome"] for event in world.events("ended")] == ["yielded"] * 3


def test_a_silent_holder_loses_its_turn_to_the_next(world: World) -> None:
    first, second = world.member("r1"), world.member("r2")
    first.hold("p")
    second.ask("p")
    while world.scripts.now_ms < START_MS + LEASE_MS + 5_000:
        world.scripts.advance(5_000)
        second.renew()
    assert second.again().outcome == "HELD"
    assert first.yield_().outcome == "LOST"


def test_a_new_life_settles_and_keeps_the_turn(world: World) -> None:
    holder = world.member("r1")
    holder.hold("a")
    world.new_epoch()
    assert holder.beats()["state"] == "held"
    world.settle()
    assert world.state(holder.id) == "held"
    assert world.picture().epoch == 2


@pytest.mark.parametrize("outcome", ["cancelled", "revoked"])
def test_a_request_can_be_given_up(world: World, outcome: str) -> None:
    world.member("r1").hold("a")
    waiter = world.member("r2")
    waiter.ask("a")
    if outcome == "cancelled":
        waiter.cancel()
    else:
        world.run(wire.Revoke(waiter.id, "an operator"))
    assert waiter.again().ended == outcome
