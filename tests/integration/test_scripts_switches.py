"""Grants that go through agents: switching, READY, and who may call what off."""

from __future__ import annotations

import pytest

from slicelock import wire
from tests.support.scripts import START_MS
from tests.support.world import LEASE_MS, WAIT_MS, Agent, Ear, World, is_wanted

pytestmark = pytest.mark.usefixtures("slices_of_nodes")


def test_a_new_slice_settles_with_the_first_beats(world: World) -> None:
    world.declare("d", "n1", "n2")
    r1 = world.member("r1")
    assert r1.ask("d").outcome == "QUEUED"
    assert world.slice("d").settling
    world.agent("n1").beat()
    assert world.slice("d").settling
    world.agent("n2").beat()
    assert not world.slice("d").settling
    assert r1.again().outcome == "SWITCHING"


# ---------------------------------------------------------------- the way to HELD


def test_a_turn_begins_when_its_node_says_ready(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    assert r1.ask("a").outcome == "SWITCHING"
    wanted = n1.wanted()["a"]
    fence = START_MS * 1024
    assert (wanted["state"], int(wanted["fence"]), wanted["request"]) == ("switching", fence, "r1/main/1")
    assert (wanted["run"], wanted["job"], wanted["lane"], int(wanted["k"])) == ("r1", "job-r1", "main", 1)
    assert not int(wanted["settling"])
    assert r1.again().outcome == "SWITCHING"
    n1.shown["a"].admit(wanted)
    assert n1.report("a", fence) == "OK"
    assert r1.again().fences == {"a": fence}
    assert n1.wanted()["a"]["state"] == "held"
    [event] = world.events("ready")
    assert (event["slice"], event["node"], event["fence"], event["bytes"]) == ("a", "n1", str(fence), "0")


def test_a_report_says_what_was_moved(world: World, n1: Agent) -> None:
    world.member("r1").ask("a")
    n1.beat(results=[n1.admit("a", n1.wanted()["a"], moved=True, bytes=1 << 40, seconds=1.5)])
    [event] = world.events("ready")
    assert (event["bytes"], event["seconds"]) == (str(1 << 40), "1.5")


def test_the_messages_of_a_hand_over(world: World, n1: Agent, ear: Ear) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    assert ear.heard() == [("node:n1", "grant a")]
    n1.serve()
    assert ear.heard() == [("run:r1", "held r1/main/1")]


@pytest.mark.parametrize("moved", [True, False])
def test_the_turn_says_whether_state_was_moved(world: World, n1: Agent, moved: bool) -> None:
    r1 = world.member("r1")
    r1.ask("b")
    for node in (n1, world.agent("n2")):
        result = node.admit("b", node.wanted()["b"], moved=moved and node is n1)
        node.beat(results=[result])
    assert r1.again().moved is moved


def test_every_node_must_say_ready(world: World, n1: Agent, n2: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("b")
    n1.serve()
    n1.report("b", n1.shown["b"].fence)
    assert r1.again().outcome == "SWITCHING"
    n2.serve()
    assert r1.again().outcome == "HELD"


def test_every_slice_must_be_ready(world: World, n1: Agent, n2: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a", "c")
    n1.serve()
    assert r1.again().outcome == "SWITCHING"
    assert world.slice("a").state == "switching"
    n2.serve()
    assert set(r1.again().fences) == {"a", "c"}


def test_agentless_and_agented_slices_in_one_turn(world: World, n1: Agent) -> None:
    world.declare("plain")
    r1 = world.member("r1")
    assert r1.ask("a", "plain").outcome == "SWITCHING"
    n1.serve()
    reply = r1.again()
    assert set(reply.fences) == {"a", "plain"}
    assert reply.agentless, "the lease alone guards a part of it"
    r1.yield_("plain")
    assert not r1.again().agentless


def test_stale_reports_change_nothing(world: World, n1: Agent, n2: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    fence = int(n1.wanted()["a"]["fence"])
    before = world.dump()
    assert n1.report("a", fence - 1) == "STALE"
    assert n1.report("a", fence + 1) == "STALE"
    assert n2.report("a", fence) == "STALE", "n2 does not serve a"
    assert n1.report("nowhere", fence) == "STALE"
    assert world.dump().keys() == before.keys()
    assert r1.again().outcome == "SWITCHING"
    n1.serve()
    assert n1.report("a", fence) == "STALE", "it is held already"
    assert r1.again().outcome == "HELD"
    r1.yield_()
    assert n1.report("a", fence, "FAILED", what="restore", reason="too late") == "STALE"
    assert world.member("r1").ask("a").outcome != "RUN_LOST"


def test_the_results_of_one_beat_are_answered_in_order(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    wanted = n1.wanted()["a"]
    good = n1.admit("a", wanted)
    assert n1.beat(results=[good | {"fence": 1}, good, good | {"slice": "c"}]).results == [
        "STALE",
        "OK",
        "STALE",
    ]


def test_who_comes_back_with_nobody_in_between_gets_a_new_fence(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    first = r1.fences["a"]
    r1.yield_()
    r1.hold("a")
    assert r1.fences["a"] == first + 1


def test_the_lease_starts_when_the_turn_begins(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    for _ in range(20):
        world.advance(4_000)
        assert r1.beats()["state"] == "switching"
    n1.serve()
    assert r1.again().outcome == "HELD"
    world.advance(LEASE_MS)
    assert r1.state == "held"
    world.advance(1)
    assert r1.state == "expired"


def test_switching_is_shown_with_its_start(world: World) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    world.scripts.advance(2_000)
    view = world.slice("a")
    assert (view.state, view.since_ms) == ("switching", 2_000)
    assert view.holder is not None
    assert view.holder.state == "switching"


# ---------------------------------------------------------------- called off


def test_a_waiter_that_dies_while_switching_makes_room(world: World, n1: Agent) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    r2.ask("a")
    first = int(n1.wanted()["a"]["fence"])
    for _ in range(4):
        world.advance(4_000)
        r2.again()
    assert r1.state == "expired"
    assert r2.again().outcome == "SWITCHING"
    assert n1.report("a", first) == "STALE"
    n1.serve()
    assert r2.again().outcome == "HELD"


def test_cancelling_while_switching_makes_room(world: World, n1: Agent, ear: Ear) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    r2.ask("a")
    ear.heard()
    assert r1.cancel().outcome == "CANCELLED"
    heard = ear.heard()
    assert ("run:r1", "lost r1/main/1") in heard
    assert ("node:n1", "grant a") in heard
    assert n1.wanted()["a"]["run"] == "r2"


def test_cancelling_the_only_one_leaves_nothing_wanted(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("b")
    r1.cancel()
    assert not is_wanted(n1.wanted()["b"])
    assert world.slice("b").state == "free"
    assert not world.client.exists(world.keys.ready("b"))


def test_a_ready_of_one_grant_does_not_count_for_the_next(world: World, n1: Agent, n2: Agent) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("b")
    r2.ask("b")
    n1.serve()
    r1.cancel()
    n2.serve()
    assert r2.again().outcome == "SWITCHING"
    n1.serve()
    assert r2.again().outcome == "HELD"


def test_a_yield_while_held_elsewhere_frees_only_its_own(world: World, n1: Agent, n2: Agent) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a", "b")
    r2.ask("b", "c")
    r1.yield_("b")
    assert r2.again().outcome == "SWITCHING"
    n1.serve()
    n2.serve()
    assert r2.again().outcome == "HELD"
    assert r1.beats()["state"] == "held"


def test_holders_are_not_told_held_before_all_is_ready_even_on_repeated_asks(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    for _ in range(5):
        n1.beat()
        assert r1.again().outcome == "SWITCHING"
        assert r1.beats()["state"] == "switching"


# ---------------------------------------------------------------- processes that end


def test_an_exit_seen_by_an_agent_ends_the_turn_at_once(world: World, n1: Agent, ear: Ear) -> None:
    """kill -9 of a holder: the next switch starts with the beat that tells it."""
    r1, r2 = world.member("r1"), world.member("r2")
    r1.register("a")
    r1.hold("a")
    r2.ask("a")
    ear.heard()
    n1.exited(r1)
    assert r1.state == "holder_died"
    assert ("node:n1", "grant a") in ear.heard()
    assert n1.wanted()["a"]["run"] == "r2"


def test_an_exit_takes_the_waiting_request_along(world: World, n1: Agent) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.register("a")
    r2.ask("a", "c")
    n1.exited(r2)
    assert r2.state == "holder_died"
    assert world.queue("a") == world.queue("c") == []


def test_an_exit_of_an_unknown_process_changes_nothing(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    before = world.dump()
    n1.exited(world.member("ghost"), r1)
    after = world.dump()
    assert after == before
    assert r1.state == "held"


def test_an_exit_told_twice_or_by_two_nodes_counts_once(world: World, n1: Agent, n2: Agent) -> None:
    r1 = world.member("r1")
    r1.register("b")
    r1.hold("b")
    n1.exited(r1)
    events = len(world.events("ended"))
    n2.exited(r1)
    n1.exited(r1)
    assert len(world.events("ended")) == events


def test_the_dead_processs_replacement_goes_on(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.register("a")
    r1.hold("a")
    n1.exited(r1)
    r1.generation = 1
    assert int(r1.register("a").lanes["main"]["k"]) == 1
    r1.hold("a")
    assert r1.k == 2


def test_waiting_lease_holds_while_switching(world: World) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    world.advance(WAIT_MS)
    assert r1.state == "switching"
    world.advance(1)
    assert r1.state == "expired"


def test_a_slice_without_room_is_tried_again_and_does_not_heal_before(world: World, n1: Agent) -> None:
    """Nobody that could be evicted is named: that such a one is not loaded says nothing."""
    r1 = world.member("r1")
    r1.ask("a")
    fence = int(n1.wanted()["a"]["fence"])
    n1.report("a", fence, "FAILED", what="evict", reason="no room", run="")
    n1.beat()
    assert world.slice("a").blocked["n1"]["reason"] == "no room"
    assert r1.again().reason == "no room"
    world.advance(2_001)
    assert r1.again().outcome == "SWITCHING"


def test_only_what_is_being_switched_is_put_back(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    before = world.dump()
    for member, state in ((r1, "held"), (r2, "queued")):
        assert world.run(wire.Revoke(member.id, "again", requeue=True)).state == state
    assert world.dump() == before
