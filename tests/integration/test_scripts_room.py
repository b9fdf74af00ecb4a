"""A switch that cannot be done now although no run is in the way: it waits for room, longer each time."""

from __future__ import annotations

from tests.support.world import Agent, World


def no_room(agent: Agent) -> str:
    """Report that nobody is in the way of the present switch of `a`, and that it cannot be done now."""
    fence = int(agent.wanted()["a"]["fence"])
    return agent.report("a", fence, "FAILED", what="evict", run="", reason="3 GiB are missing on sim:0")


def test_a_switch_that_waits_for_room_is_tried_again_after_2_4_8_s(world: World) -> None:
    """No run is in the way, so no report can heal it."""
    world.declare("a", "n1")
    world.serve()
    node, waiter = world.agent("n1"), world.member("r2")
    waiter.register("a")
    waiter.ask("a")
    for wait in (2_000, 4_000, 8_000):
        assert no_room(node) == "OK"
        world.advance(wait - 500)
        waiter.beats()
        assert "n1" in world.slice("a").blocked
        world.advance(1_000)
        waiter.again()
        assert not world.slice("a").blocked
