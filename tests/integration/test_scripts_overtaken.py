"""After a failover Redis knows a turn as a switch; it has begun since, and may have given a slice back."""

from __future__ import annotations

import pytest

from slicelock import wire
from tests.support.world import LEASE_MS, Member, World

PATIENCE_MS = 2_000

pytestmark = pytest.mark.usefixtures("slices")


@pytest.mark.parametrize("first", ["a", "both"])
def test_a_turn_that_redis_knows_as_a_switch_keeps_what_it_had_not_given_back(
    world: World, r1: Member, r2: Member, first: str
) -> None:
    """It had given `b` back, and another one has it since."""
    r1.ask("a", "b")
    backup = world.scripts.backup()
    world.serve()
    r1.again()
    r1.yield_("b")
    r2.hold("b")
    if first == "a":
        world.agent("n2").alive = False
    world.new_epoch(backup)
    world.beat()
    world.advance(PATIENCE_MS)
    assert (world.slice("a").settling, world.slice("b").settling) == (False, first == "a")
    world.agent("n2").alive = True
    world.settle()
    assert world.slice("a").kept == r1.id
    assert world.member("r3").ask("a").outcome == "QUEUED"
    assert (r1.beats()["state"], r2.beats()["state"]) == ("held", "held")
    assert set(r1.again().fences) == {"a"}
    assert r1.yield_().outcome == "YIELDED"


@pytest.mark.parametrize("how", ["done", "ask", "never"])
def test_or_nothing_when_its_member_says_so(world: World, r1: Member, r2: Member, how: str) -> None:
    r1.ask("a", "b")
    backup = world.scripts.backup()
    world.serve()
    if how != "ask":
        r1.again()
    r1.yield_()
    r2.hold("b")
    world.new_epoch(backup)
    world.settle()
    assert world.slice("a").kept == r1.id
    match how:
        case "done":
            r1.renew(done=1)
            assert r1.state == "cancelled"
        case "ask":
            assert r1.again().outcome == "QUEUED", "it waits at its place"
        case _:
            world.advance(LEASE_MS + 4_000)
    assert world.slice("a").kept == ""
    assert world.member("r3").ask("a").outcome == "SWITCHING"


def test_a_switch_overtaken_by_a_holder_that_says_so(world: World, r1: Member, r2: Member) -> None:
    r1.ask("a", "b")
    backup = world.scripts.backup()
    world.serve()
    r1.again()
    r1.yield_("b")
    r2.hold("b")
    world.new_epoch(backup)
    assert r2.beats()["state"] == "held"
    world.settle()
    assert (r1.beats()["state"], r2.beats()["state"]) == ("held", "held")


def test_a_turn_that_redis_knows_as_a_switch_does_not_need_its_nodes_again(world: World, r1: Member) -> None:
    """They have shown it once; then they are silent."""
    r1.ask("a", "b")
    backup = world.scripts.backup()
    world.serve()
    r1.again()
    world.new_epoch(backup)
    world.settle()
    for _ in range(10):
        world.scripts.advance(4_000)
        assert r1.beats()["state"] == "held"
    assert r1.again().fences == r1.fences


def test_a_turn_that_was_granted_again_under_later_fences_is_its_own(world: World, r1: Member) -> None:
    r1.ask("a", "b")
    backup = world.scripts.backup()
    world.scripts.jump(5)
    world.run(wire.Revoke(r1.id, requeue=True))
    world.serve()
    assert r1.again().outcome == "HELD"
    world.new_epoch(backup)
    world.settle()
    world.serve()
    assert r1.beats()["state"] == "held"
    assert r1.again().fences == r1.fences
