"""What operators and viewers do: declare, forget, revoke, status."""

from __future__ import annotations

from typing import Any

import pytest

from slicelock import wire
from tests.support.world import LEASE_MS, Ear, World


def declare(world: World, name: str, nodes: dict[str, list[str]], **settings: Any) -> wire.DeclareReply:
    return world.run(wire.Declare(name, nodes, settings))


def forget(world: World, name: str, kind: str = "slice") -> wire.Reply:
    return world.run(wire.Forget(kind, name))


# ---------------------------------------------------------------- declare


def test_a_declared_slice_shows_its_nodes_and_settings(world: World) -> None:
    assert declare(world, "a", {"n1": ["sim:0", "sim:1"], "n2": ["sim:0"]}, max_hold_ms=5).outcome == "OK"
    view = world.slice("a")
    assert view.nodes == {"n1": ("sim:0", "sim:1"), "n2": ("sim:0",)}
    assert (view.state, view.fence, view.settings) == ("free", 0, {"max_hold_ms": 5})
    assert [event["slice"] for event in world.events("declared")] == ["a"]
    assert [node.name for node in world.picture().nodes] == ["n1", "n2"]


def test_declaring_the_same_again_changes_nothing(world: World) -> None:
    declare(world, "a", {"n1": ["sim:0"]}, x=1)
    before = world.dump()
    assert declare(world, "a", {"n1": ["sim:0"]}, x=1).outcome == "OK"
    assert world.dump() == before


def test_declaring_the_same_again_is_fine_while_in_use(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    world.member("r1").hold("a")
    world.member("r2").ask("a")
    before = world.dump()
    assert declare(world, "a", {"n1": ["sim:a"]}).outcome == "OK"
    assert world.dump() == before


def test_a_device_belongs_to_one_slice(world: World) -> None:
    declare(world, "a", {"n1": ["sim:0", "sim:1"]})
    before = world.dump()
    reply = declare(world, "b", {"n1": ["sim:1", "sim:2"]})
    assert (reply.outcome, reply.slice) == ("OVERLAP", "a")
    assert "sim:1" in reply.reason
    assert world.dump() == before
    assert declare(world, "b", {"n2": ["sim:1"]}).outcome == "OK", "another node's device"
    assert declare(world, "a", {"n1": ["sim:1"]}).outcome == "OK", "its own device"
    assert declare(world, "c", {"n1": ["sim:0"]}).outcome == "OK", "given up by a"


def test_a_free_slice_may_change_and_keeps_its_fence(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    fence = r1.fences["a"]
    assert declare(world, "a", {"n1": ["sim:a"], "n3": ["sim:a"]}, x=2).outcome == "OK"
    view = world.slice("a")
    assert (set(view.nodes), view.settings, view.fence) == ({"n1", "n3"}, {"x": 2}, fence)
    assert declare(world, "a", {"n3": ["sim:a"]}).outcome in ("OK", "IN_USE")


def test_a_node_that_is_left_serves_the_slice_no_longer(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    declare(world, "a", {"n2": ["sim:a"]})
    assert not int(world.agent("n1").wanted()["a"]["known"])
    left = {name for name, value in world.record(world.keys.slice("a")).items() if "n1" in name and value}
    assert left == set()
    assert {node.name: node.slices for node in world.picture().nodes} == {"n1": (), "n2": ("a",)}


def test_agentless_may_become_agented_and_back(world: World) -> None:
    world.declare("a")
    assert declare(world, "a", {"n1": ["sim:0"]}).outcome == "OK"
    assert world.member("r1").ask("a").outcome == "QUEUED"
    world.member("r1").cancel(1)
    world.agent("n1").beat()
    world.scripts.advance(2_001)
    world.run(world.agent("n1").beat_command())
    assert declare(world, "a", {}).outcome in ("OK", "IN_USE")


@pytest.mark.parametrize("how", ["held", "switching", "queued", "saved", "kept"])
def test_what_is_in_use_can_be_neither_changed_nor_forgotten(world: World, how: str) -> None:
    world.declare("a", "n1")
    world.serve()
    agent, r1 = world.agent("n1"), world.member("r1")
    match how:
        case "held":
            r1.hold("a")
        case "switching":
            r1.ask("a")
        case "queued":
            agent.alive = False
            world.scripts.advance(11_000)
            r1.ask("a")
        case "kept":
            backup = world.scripts.backup()
            r1.hold("a")
            world.new_epoch(backup)
            world.settle()
            assert world.slice("a").kept
        case _:
            agent.shown["a"].saved = ["r1"]
            agent.beat()
    before = world.dump()
    reply = declare(world, "a", {"n1": ["sim:other"]})
    assert reply.outcome == "IN_USE"
    assert reply.reason
    assert forget(world, "a").outcome == "IN_USE"
    assert world.dump() == before


def test_a_slice_whose_nodes_never_came_can_be_corrected(world: World) -> None:
    """A mistyped node name must not be for ever."""
    world.declare("a", "typo")
    world.agents.pop("typo")
    world.scripts.advance(11_000)
    assert world.slice("a").blocked
    assert declare(world, "a", {"n1": ["sim:a"]}).outcome == "OK"
    assert not world.slice("a").blocked, "it is rid of that node"
    assert forget(world, "typo", "node").outcome == "OK"
    assert forget(world, "a").outcome == "OK"


def test_a_slice_of_a_node_that_is_gone_for_good_can_be_forgotten(world: World) -> None:
    """Also after a restart of Redis, when it waits in vain for that node's word."""
    world.declare("a", "n1")
    world.serve()
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    world.agent("n1").shown["a"].run = ""
    world.agent("n1").beat()
    world.agent("n1").alive = False
    world.new_epoch()
    world.run(wire.Beat("other", "b", "v", 10_000, {"slices": {}}))
    world.scripts.advance(LEASE_MS)
    assert world.slice("a").settling
    assert world.slice("a").blocked
    assert forget(world, "a").outcome == "OK"


# ---------------------------------------------------------------- forget


def test_a_forgotten_slice_leaves_nothing(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    assert forget(world, "a").outcome == "OK"
    assert {name for name in world.dump() if "a" in name.split(":")[1:]} == set()
    assert [name for name, _ in world.dump()["deadlines"]] == [b"node|n1"]  # type: ignore[attr-defined]
    assert world.events("forgotten")[-1]["slice"] == "a"
    assert world.member("r1").ask("a").outcome == "NO_SUCH_SLICE"
    assert forget(world, "a").outcome == "NO_SUCH_SLICE"
    assert forget(world, "n1", "node").outcome == "OK"
    assert world.dump() == {}


def test_a_forgotten_slice_may_be_declared_anew(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    world.agent("n1").shown["a"].run = ""
    world.agent("n1").beat()
    forget(world, "a")
    world.declare("a", "n1")
    world.serve()
    world.scripts.advance(2_000)
    world.serve()
    r1.hold("a")
    assert r1.fences["a"] > world.agent("n1").shown["a"].top - 1


def test_a_node_with_slices_is_in_use(world: World) -> None:
    world.declare("a", "n1")
    before = world.dump()
    reply = forget(world, "n1", "node")
    assert reply.outcome == "IN_USE"
    assert "a" in reply.reason
    assert forget(world, "nowhere", "node").outcome == "NO_SUCH_NODE"
    assert world.dump() == before


# ---------------------------------------------------------------- revoke


def test_a_revoked_turn_is_over_and_the_next_starts(world: World, ear: Ear) -> None:
    world.declare("a", "n1")
    world.serve()
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    ear.heard()
    assert world.run(wire.Revoke(r1.id, "maintenance")).outcome == "REVOKED"
    heard = ear.heard()
    assert ("run:r1", "lost r1/main/1") in heard
    assert ("node:n1", "grant a") in heard
    part = r1.beats()
    assert (part["state"], part["outcome"], part["reason"]) == ("LOST", "revoked", "maintenance")
    reply = r1.yield_()
    assert (reply.outcome, reply.ended) == ("LOST", "revoked")
    assert r2.again().outcome == "SWITCHING"


def test_the_loser_learns_whether_its_state_is_saved(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    world.run(wire.Revoke(r1.id))
    world.agent("n1").beat()
    assert r1.beats()["state_saved"] == "1", "still loaded"
    r2.hold("a")
    world.agent("n1").beat()
    assert r1.beats()["state_saved"] == "1", "saved by the switch"
    world.agent("n1").shown["a"].saved = []
    world.agent("n1").beat()
    assert r1.beats()["state_saved"] == "0"
    assert r1.yield_().state_saved is False


def test_revoking_what_has_ended_says_how(world: World) -> None:
    world.declare("a")
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    before = world.dump()
    reply = world.run(wire.Revoke(r1.id))
    assert (reply.outcome, reply.ended) == ("ENDED", "yielded")
    assert world.run(wire.Revoke("ghost/main/1")).outcome == "ENDED"
    assert world.dump() == before


def test_revoking_a_waiter(world: World) -> None:
    world.declare("a")
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    assert world.run(wire.Revoke(r2.id, "no")).outcome == "REVOKED"
    assert r2.again().ended == "revoked"
    assert world.queue("a") == []


def test_a_switch_may_be_put_back_into_its_place(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    r2.ask("a")
    first = world.slice("a").fence
    assert world.run(wire.Revoke(r1.id, "again", requeue=True)).outcome == "REVOKED"
    assert r1.again().outcome == "SWITCHING", "it was first, so it starts again"
    assert [(event["run"], event["reason"]) for event in world.events("requeued")] == [("r1", "again")]
    assert world.slice("a").fence == first + 1
    assert world.agent("n1").report("a", first) == "STALE"


# ---------------------------------------------------------------- status


def test_the_picture_shows_who_has_and_who_waits(world: World) -> None:
    world.declare("a")
    world.declare("b", "n1")
    world.serve()
    r1, r2, r3 = world.member("r1"), world.member("r2"), world.member("r3", of=2)
    r1.hold("a", phase="train")
    world.scripts.advance(1_000)
    r2.ask("a", "b", priority=2, phase="sync")
    r3.ask("b")
    world.scripts.advance(500)
    picture = world.picture()
    a, b = picture.slices
    assert (a.holder.run, a.holder.phase, a.holder.held_ms) == ("r1", "train", 1_500)  # type: ignore[union-attr]
    assert a.holder.lease_left_ms == LEASE_MS - 1_500  # type: ignore[union-attr]
    [waiter] = a.queue
    assert waiter == b.queue[0]
    assert (waiter.id, waiter.priority, waiter.phase, waiter.waited_ms) == ("r2/main/1", 2, "sync", 500)
    assert "r1" in waiter.reason
    [gathering] = picture.gathering
    assert (gathering.id, gathering.members, gathering.joined) == ("r3/main/1", 2, 1)
    assert picture.now_ms == world.scripts.now_ms


def test_the_picture_of_one_slice_and_of_a_short_queue(world: World) -> None:
    world.declare("a")
    world.declare("b")
    world.member("r0").hold("a")
    for i in range(5):
        world.member(f"w{i}").ask("a")
    reply = world.run(wire.Status("a", 2))
    [only] = reply.picture["slices"]
    assert (only["name"], len(only["queue"]), only["queued"]) == ("a", 2, "5")
    assert world.run(wire.Status("nowhere")).outcome == "NO_SUCH_SLICE"


def test_a_pool_that_nobody_has_used_has_an_empty_picture(world: World) -> None:
    picture = world.picture()
    assert (picture.slices, picture.nodes, picture.gathering) == ((), (), ())
    assert world.dump() == {}


def test_nodes_are_shown_with_what_they_report(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    world.member("r1").hold("a")
    world.scripts.advance(3_000)
    world.agent("n1").beat()
    world.scripts.advance(700)
    [node] = world.picture().nodes
    assert (node.name, node.beat_age_ms, node.version, node.agent, node.slices) == (
        "n1",
        700,
        "0.1.0",
        "boot:j@host",
        ("a",),
    )
    assert node.reports["a"]["run"] == "r1"
    assert list(node.reports["a"]["loaded"]) == ["r1"]


# ---------------------------------------------------------------- drain


def drain(world: World, name: str, draining: bool = True, why: str = "") -> str:
    return world.run(wire.Drain(name, draining, why)).outcome


def test_nothing_new_starts_on_a_draining_slice_and_its_turn_goes_on(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    holder, waiter = world.member("r1"), world.member("r2")
    holder.hold("a")
    waiter.ask("a")
    assert drain(world, "a", why="disk") == "OK"
    assert holder.beats()["state"] == "held"
    holder.yield_()
    world.serve()
    assert waiter.again().reason == "a is draining: disk"
    assert drain(world, "a") == "OK"
    assert world.slice("a").draining == "a is draining: disk", "the first one's reason stays"
    assert world.slice("a").troubles == {}
    assert world.slice("a").queue[0].reason == "a is draining: disk"
    assert drain(world, "a", draining=False) == "OK"
    world.serve()
    assert waiter.again().outcome == "HELD"


def test_a_switch_under_way_ends_with_its_turn(world: World) -> None:
    world.declare("a", "n1")
    world.declare("b", "n1")
    world.serve()
    both = world.member("r1")
    both.ask("a", "b")
    drain(world, "a")
    world.advance(11_000)
    world.serve()
    assert both.again().outcome == "HELD"


def test_a_draining_slice_holds_nobody_up_elsewhere(world: World) -> None:
    for name in "ab":
        world.declare(name)
    drain(world, "a")
    assert world.member("r1").ask("a", "b").outcome == "QUEUED"
    assert world.member("r2").ask("b").outcome == "HELD"


def test_draining_twice_changes_nothing(world: World) -> None:
    world.declare("a")
    for draining in (True, False):
        drain(world, "a", draining)
        before = world.dump()
        assert drain(world, "a", draining) == "OK"
        assert world.dump() == before
    assert [event["kind"] for event in world.events("blocked")] == ["drain"]
    assert drain(world, "nonesuch") == "NO_SUCH_SLICE"
