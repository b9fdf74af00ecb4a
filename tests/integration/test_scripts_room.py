"""A request that alone cannot be served now, since its run does not fit: it waits, longer each time, and
others go on meanwhile."""

from __future__ import annotations

import pytest

from tests.support.world import WAIT_MS, Agent, Member, World

REASON = "run r1 waits for room: 3 GiB are missing on sim:0"


@pytest.fixture
def node(world: World) -> Agent:
    """The agent of `a`, and of one half of `b`."""
    world.declare("a", "n1")
    world.declare("b", "n1", "n2")
    world.serve()
    return world.agent("n1")


def no_room(node: Agent, name: str = "a") -> None:
    """Report that the present switch cannot be done now, though nobody is in its way."""
    wanted = node.wanted()[name]
    told = node.report(name, int(wanted["fence"]), "FAILED", what="later", run=wanted["run"], reason=REASON)
    assert told == "OK"


def asked(world: World, run: str, *slices: str) -> Member:
    member = world.member(run)
    member.register(*slices)
    member.ask(*slices)
    return member


def test_it_is_tried_again_after_2_4_8_s(world: World, node: Agent) -> None:
    r1 = asked(world, "r1", "a")
    for wait in (2_000, 4_000, 8_000):
        no_room(node)
        reply = r1.again()
        assert (reply.outcome, reply.reason) == ("QUEUED", REASON)
        world.advance(wait - 500)
        assert r1.again().outcome == "QUEUED"
        world.advance(501)
        assert r1.again().outcome == "SWITCHING"
    node.serve()
    assert r1.again().outcome == "HELD"


def test_others_that_fit_go_on_meanwhile_and_it_keeps_its_place(world: World, node: Agent) -> None:
    r1, r2, r3 = asked(world, "r1", "a"), asked(world, "r2", "a"), asked(world, "r3", "a")
    no_room(node)
    node.serve()
    assert (r1.again().outcome, r2.again().outcome, r3.again().outcome) == ("QUEUED", "HELD", "QUEUED")
    assert r1.again().reason == REASON
    assert not world.slice("a").blocked
    world.advance(2_001)
    r2.yield_()
    node.serve()
    assert (r1.again().outcome, r3.again().outcome) == ("HELD", "QUEUED")


def test_two_that_do_not_fit_starve_nobody(world: World, node: Agent) -> None:
    r1, r2, r3 = asked(world, "r1", "a"), asked(world, "r2", "a"), asked(world, "r3", "a")
    no_room(node)
    assert r2.again().outcome == "SWITCHING"
    no_room(node)
    node.serve()
    assert (r1.again().outcome, r2.again().outcome, r3.again().outcome) == ("QUEUED", "QUEUED", "HELD")


def test_its_other_slices_are_not_held_up_either(world: World, node: Agent) -> None:
    r1, r2 = asked(world, "r1", "a", "b"), asked(world, "r2", "b")
    assert r2.again().outcome == "QUEUED"
    no_room(node)
    world.serve()
    assert (r1.again().outcome, r2.again().outcome) == ("QUEUED", "HELD")


def test_whoever_is_to_be_tried_again_may_give_up(world: World, node: Agent) -> None:
    r1 = asked(world, "r1", "a")
    no_room(node)
    r1.cancel()
    world.advance(3_000)
    assert b"later|r1/main/1" not in world.client.zrange(world.keys.deadlines, 0, -1)
    assert world.slice("a").state == "free"


def test_a_record_that_somebody_has_removed_holds_nobody_up(world: World, node: Agent) -> None:
    r1, r2 = asked(world, "r1", "a"), asked(world, "r2", "a")
    no_room(node)
    world.client.delete(world.keys.request(r1.id))
    world.advance(2_001)
    node.serve()
    assert r2.again().outcome == "HELD"
    world.advance(WAIT_MS)  # its member's deadline passes, too
