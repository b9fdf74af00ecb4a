"""After Redis' clock was far ahead: a fence that no node has admitted is forgotten, any other is exceeded."""

from __future__ import annotations

from typing import Any

import pytest

from slicelock import wire
from tests.support.world import Agent, Member, Shown, World

DAY_MS = 86_400_000
FAR_MS = 3 * DAY_MS

pytestmark = pytest.mark.usefixtures("slices")


def refuse(world: World, node: str, name: str) -> str:
    """A node whose clock is right refuses a fence of the far future; what it says counts as."""
    agent = world.agent(node)
    fence = int(agent.wanted()[name]["fence"])
    assert fence > (world.scripts.now_ms - FAR_MS + DAY_MS) * 1024
    return agent.report(name, fence, "FAILED", what="evict", reason="far ahead of this node's clock")


def heal(world: World) -> None:
    """The attempt is repeated, and the slice settles."""
    world.advance(12_000)


@pytest.fixture
def refused(world: World, n1: Agent, r1: Member) -> Member:
    """It has asked while the clock was ahead; the clock is right again, and the slice is still blocked."""
    before = world.member("r0")
    before.hold("a")
    before.yield_()
    world.scripts.jump(FAR_MS)
    r1.ask("a")
    assert refuse(world, "n1", "a") == "OK"
    world.scripts.jump(-FAR_MS)
    assert "far ahead" in str(world.slice("a").blocked)
    return r1


def far(world: World, fence: int) -> bool:
    return fence > (world.scripts.now_ms + DAY_MS) * 1024


def test_a_fence_that_no_node_has_admitted_is_forgotten(world: World, n1: Agent, refused: Member) -> None:
    top = n1.shown["a"].top
    assert far(world, world.slice("a").fence)
    heal(world)
    assert world.slice("a").blocked == {}
    world.serve()
    assert refused.again().outcome == "HELD"
    assert top < refused.fences["a"] <= world.scripts.now_ms * 1024


def test_it_is_forgotten_once_its_nodes_have_said_what_they_have_admitted(
    world: World, n1: Agent, refused: Member
) -> None:
    """One that has just admitted it, and did not come to say so, is blocked by name, not asked to go back."""
    world.scripts.advance(3_000)
    n1.shown["a"].doing = "evict"
    world.advance(10_000)
    assert world.slice("a").settling
    n1.shown["a"].doing, n1.shown["a"].top = "", (world.scripts.now_ms + FAR_MS) * 1024
    world.advance(3_000)
    assert "reports a fence that cannot be" in str(world.slice("a").blocked)
    assert refused.state == "queued"


def test_one_that_a_node_has_admitted_is_exceeded_and_blocks_nobody(
    world: World, n1: Agent, r1: Member
) -> None:
    """The node's clock was ahead as well, as on one machine."""
    world.scripts.jump(FAR_MS)
    r1.hold("a")
    world.scripts.jump(-FAR_MS)
    world.advance(4_000)
    assert world.slice("a").blocked == {}
    r1.yield_()
    r2 = world.member("r2")
    r2.hold("a")
    assert r2.fences["a"] == r1.fences["a"] + 1


@pytest.mark.parametrize("more", [1, DAY_MS * 1024])
def test_a_node_that_shows_one_that_was_never_given_out_is_blocked(
    world: World, n1: Agent, r1: Member, more: int
) -> None:
    world.scripts.jump(FAR_MS)
    r1.hold("a")
    world.scripts.jump(-FAR_MS)
    n1.shown["a"].top += more
    n1.beat()
    assert world.slice("a").blocked["n1"]["kind"] == "fence"
    n1.shown["a"].top -= more
    n1.beat()
    assert world.slice("a").blocked == {}


def test_one_that_redis_knows_as_admitted_is_exceeded(world: World, n1: Agent, r1: Member) -> None:
    """Whatever became of the nodes that have admitted it."""
    world.scripts.jump(FAR_MS)
    r1.hold("a")
    r1.yield_()
    world.scripts.jump(-FAR_MS)
    n1.shown.pop("a")
    world.declare("a", "n2")
    world.settle()
    r2 = world.member("r2")
    r2.hold("a")
    assert r2.fences["a"] == r1.fences["a"] + 1


def test_a_ready_says_that_it_is_admitted(world: World, n1: Agent, r1: Member) -> None:
    """Also one of several nodes, and one that has lost its journal since."""
    world.scripts.jump(FAR_MS)
    r1.ask("b")
    wanted: Any = n1.wanted()["b"]
    world.run(wire.Results("n1", n1.agent, [n1.admit("b", wanted)]))
    r1.cancel()
    world.scripts.jump(-FAR_MS)
    n1.shown["b"] = Shown()
    world.advance(4_000)
    r2 = world.member("r2")
    r2.hold("b")
    assert r2.fences["b"] == int(wanted["fence"]) + 1


def test_the_fences_of_an_agentless_slice_go_on_rising(world: World, r1: Member) -> None:
    world.declare("p")
    world.scripts.jump(FAR_MS)
    r1.hold("p")
    r1.yield_()
    fence = r1.fences["p"]
    world.scripts.jump(-FAR_MS)
    r1.hold("p")
    assert r1.fences["p"] == fence + 1


def test_with_several_slices_the_other_ones_rise_as_ever(world: World, refused: Member) -> None:
    refused.cancel()
    world.advance(3_000)
    both = world.member("r3")
    assert both.ask("a", "b").outcome == "QUEUED"
    other = world.member("r4")
    other.hold("b")
    other.yield_()
    world.settle()
    world.serve()
    assert both.again().outcome == "HELD"
    assert not far(world, both.fences["a"])


def test_a_turn_since_then_outlives_a_failover_to_a_server_that_has_the_old_fence(
    world: World, n1: Agent, refused: Member
) -> None:
    refused.cancel()
    world.advance(3_000)
    stored = world.scripts.backup()
    holder = world.member("r3")
    holder.ask("a")
    world.settle()
    world.serve()
    assert holder.again().outcome == "HELD"
    world.new_epoch(stored)
    world.settle()
    assert world.slice("a").kept == holder.id
    assert holder.beats()["state"] == "held"
    assert world.slice("a").fence == holder.fences["a"]
