"""Turns that several members take part in, and processes that take their places."""

from __future__ import annotations

import pytest

from tests.support.world import LEASE_MS, WAIT_MS, Ear, Member, World, hold_together

pytestmark = pytest.mark.usefixtures("agentless_slices")


# ---------------------------------------------------------------- gathering


def test_waits_for_the_last_member(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    reply = m0.ask("a")
    assert (reply.outcome, reply.missing, reply.joined) == ("GATHERING", 1, ("0",))
    assert world.queue("a") == []
    assert world.slice("a").state == "free"
    assert [one.id for one in world.picture().gathering] == ["r1/main/1"]
    assert m1.ask("a").outcome == "HELD"
    assert m0.again().outcome == "HELD"
    assert m0.fences == m1.again().fences


def test_the_run_hears_of_each_member_that_comes(world: World, ear: Ear) -> None:
    for name in "012":
        world.member("r1", name, of=3).ask("a")
    assert ear.heard() == [("run:r1", "look r1/main/1")] * 2 + [("run:r1", "held r1/main/1")]


def test_its_place_is_that_of_the_first_to_come(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    holder, other = world.member("r0"), world.member("r2")
    holder.hold("a")
    m0.ask("a")
    world.scripts.advance(1)
    other.ask("a")
    assert world.queue("a") == [other.id]
    m1.ask("a")
    assert world.queue("a") == [m0.id, other.id]


def test_a_gathering_request_holds_nobody_up(world: World, pair: tuple[Member, Member]) -> None:
    pair[0].ask("a")
    assert world.member("r2").ask("a").outcome == "HELD"


@pytest.mark.parametrize("other", [{"slices": ("b",)}, {"slices": ("a", "b")}, {"members": 3}])
def test_members_must_ask_for_the_same(
    world: World, pair: tuple[Member, Member], other: dict[str, object]
) -> None:
    m0, m1 = pair
    m0.ask("a")
    before = world.dump()
    m1.k, m1.slices = 1, ("a",)
    reply = m1.again(**other)
    assert reply.outcome == "MISMATCH"
    assert "a" in reply.reason
    assert world.dump() == before
    assert m1.again().outcome == "HELD"


def test_a_member_too_many_is_late(world: World, pair: tuple[Member, Member]) -> None:
    hold_together(pair, "a")
    before = world.dump()
    assert world.member("r1", "2", of=2).ask("a").outcome == "LATE"
    assert world.dump() == before


def test_late_while_queued_too(world: World, pair: tuple[Member, Member]) -> None:
    world.member("r0").hold("a")
    for member in pair:
        member.ask("a")
    late = world.member("r1", "2", of=2)
    assert late.ask("a").outcome == "LATE"
    late.renew(done=1)
    assert pair[0].again().outcome == "QUEUED", "who takes no part cannot give it up"


def test_a_missing_member_lets_the_request_lapse(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    m0.ask("a")
    world.scripts.advance(WAIT_MS + 1)
    assert m0.state == "expired"
    assert m1.ask("a").ended == "expired"


def test_the_first_member_waits_as_long_as_it_is_heard_of(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    m0.ask("a")
    for _ in range(30):
        world.scripts.advance(4_000)
        assert m0.beats()["state"] == "gathering"
    assert m1.ask("a").outcome == "HELD"


def test_withdrawing_ends_it_for_all(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    world.member("r0").hold("a")
    m0.ask("a")
    m1.ask("a")
    assert m0.cancel().outcome == "CANCELLED"
    assert m1.again().ended == "cancelled"
    assert world.queue("a") == []


def test_yield_before_the_turn_began_withdraws(world: World) -> None:
    world.member("r0").hold("a")
    r1 = world.member("r1")
    r1.ask("a")
    assert r1.yield_().outcome in ("YIELDED", "ALREADY")
    assert r1.state == "cancelled"
    assert world.queue("a") == []


# ---------------------------------------------------------------- parts


def test_the_last_part_ends_the_turn(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    hold_together(pair, "a")
    waiter = world.member("r2")
    waiter.ask("a")
    assert m0.yield_().outcome == "PARTIAL"
    assert waiter.again().outcome == "QUEUED"
    assert m0.yield_().outcome == "ALREADY"
    assert m1.yield_().outcome == "YIELDED"
    assert waiter.again().outcome == "HELD"
    assert m0.state == "yielded"


def test_a_slice_goes_when_all_have_given_it_back(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    hold_together(pair, "a", "b")
    assert m0.yield_("a").outcome == "PARTIAL"
    assert m1.yield_("b").outcome == "PARTIAL"
    assert (world.slice("a").state, world.slice("b").state) == ("held", "held")
    assert m0.yield_("b").outcome == "YIELDED"
    assert (world.slice("a").state, world.slice("b").state) == ("held", "free")
    assert m1.yield_().outcome == "YIELDED"
    assert m0.state == "yielded"


def test_a_member_that_has_yielded_need_not_be_heard_of(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    hold_together(pair, "a")
    m0.yield_()
    m0.again()  # its own late repetition
    for _ in range(2 * LEASE_MS // 4_000):
        world.scripts.advance(4_000)
        assert m1.beats()["state"] == "held"


def test_a_member_that_lapses_ends_the_turn_for_all(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    hold_together(pair, "a")
    for _ in range(LEASE_MS // 4_000):
        world.scripts.advance(4_000)
        assert m0.beats()["state"] == "held"
    world.scripts.advance(1)
    part = m0.beats()
    assert (part["state"], part["outcome"]) == ("LOST", "expired")
    assert "member 1" in part["reason"]
    assert m1.again().ended == "expired"


def test_the_next_turn_gathers_while_a_member_is_still_in_this_one(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, m1 = pair
    hold_together(pair, "a")
    m0.yield_()
    assert m0.ask("a").outcome == "GATHERING"
    assert m1.beats()["state"] == "held"
    assert world.slice("a").holder.id == "r1/main/1"  # type: ignore[union-attr]
    assert m1.ask("a").outcome == "HELD"
    assert world.state("r1/main/1") == "yielded"


def test_others_go_between_two_turns_of_one_run(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    hold_together(pair, "a")
    other = world.member("r2")
    other.ask("a")
    m0.ask("a")
    assert m1.ask("a").outcome == "QUEUED"
    assert other.again().outcome == "HELD"


# ---------------------------------------------------------------- processes and places


def test_a_live_process_keeps_its_place(world: World) -> None:
    first, second = world.member("r1"), world.member("r1")
    second.generation = 1
    first.register("a")
    first.hold("a")
    world.scripts.advance(3_000)
    before = world.dump()
    reply = second.ask("a")
    assert (reply.outcome, reply.by, reply.heard_ms) == ("TAKEN", first.process, 3_000)
    assert world.dump() == before
    assert second.again(k=2).outcome == "TAKEN"
    assert first.beats()["state"] == "held"


def test_a_heartbeat_does_not_take_anothers_place(world: World) -> None:
    first, second = world.member("r1"), world.member("r1")
    second.generation = 1
    first.register("a")
    first.hold("a")
    second.ask("a")
    assert second.beats()["state"] == "UNKNOWN"
    assert second.again().outcome == "TAKEN"
    world.agent("n1").exited(first)
    assert first.state == "holder_died"


@pytest.mark.parametrize("asks", [True, False])
def test_a_heartbeat_does_not_end_a_turn_that_another_has(world: World, asks: bool) -> None:
    """As of a child that was forked in its parent's turn, whose heartbeat comes while it asks in vain; or
    that says that it is done with what it has given up."""
    first, second = world.member("r1"), world.member("r1")
    second.generation = 1
    first.register("a")
    first.hold("a")
    second.register("a")
    second.k, second.slices = (2, ("a",)) if asks else (1, ())
    second.renew(*([second.part()] if asks else []), done=None if asks else 1)
    assert first.beats()["state"] == "held"
    world.scripts.advance(20_000)  # not heard of meanwhile
    second.renew(second.part()) if asks else second.renew(done=1)
    assert first.state == "yielded"


def test_a_silent_process_loses_its_place_to_the_next(world: World) -> None:
    first, second = world.member("r1"), world.member("r1")
    second.generation = 1
    first.register("a")
    first.hold("a")
    world.scripts.advance(20_000)
    second.register("a")
    assert second.ask("a", k=2).outcome in ("HELD", "QUEUED")
    assert world.state("r1/main/1") in ("holder_died", "yielded")
    assert world.slice("a").holder.id == "r1/main/2"  # type: ignore[union-attr]


def test_the_turn_of_a_silent_process_is_not_taken_over_but_over(world: World) -> None:
    """Its collectives and its state are gone with it: the next process begins with a turn of its own."""
    first, second = world.member("r1"), world.member("r1")
    second.generation = 1
    first.register("a")
    first.hold("a")
    world.scripts.advance(20_000)
    second.register("a")
    assert second.ask("a").ended == "holder_died"
    assert second.ask("a").outcome == "HELD"


def test_a_process_that_starts_anew_learns_where_its_run_is(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, m1 = pair
    hold_together(pair, "a")
    m0.yield_()
    m1.yield_()
    m0.ask("a")
    lanes = m1.register("a").lanes
    assert lanes["main"]["k"] in (2, "2")
    assert (lanes["main"]["state"], lanes["main"]["joined"]) == ("gathering", ["0"])


def test_register_knows_no_lanes_of_a_run_without_turns(world: World) -> None:
    assert world.member("r1").register("a").lanes == {}


def test_a_process_that_says_it_is_gone_ends_its_part(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    m0.register("a")
    m1.register("a")
    hold_together(pair, "a")
    m0.register("a", gone=True)
    part = m1.beats()
    assert (part["state"], part["outcome"]) == ("LOST", "holder_died")
    assert world.slice("a").state == "free"


def test_a_member_that_has_yielded_may_go(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    m0.register("a")
    m1.register("a")
    hold_together(pair, "a")
    m0.yield_()
    m0.register("a", gone=True)
    assert m1.beats()["state"] == "held"


def test_when_all_processes_are_gone_everything_of_the_run_ends(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, m1 = pair
    helper = world.member("r1", "helper", lane="side")
    m0.register("a")
    hold_together(pair, "a")
    helper.ask("b")
    m0.register("a", gone=True)
    assert m1.state == helper.state == "holder_died"
    assert world.slice("a").state == world.slice("b").state == "free"


def test_register_twice_changes_nothing_and_gone_twice_neither(world: World) -> None:
    r1 = world.member("r1")
    r1.register("a")
    before = world.dump()
    r1.register("a")
    assert world.dump() == before
    r1.register("a", gone=True)
    before = world.dump()
    r1.register("a", gone=True)
    assert world.dump() == before


def test_agents_hear_of_new_processes(world: World, ear: Ear) -> None:
    world.declare("c", "n1")
    ear.heard()
    r1 = world.member("r1")
    r1.register("c")
    assert ("node:n1", "run r1") in ear.heard()
    r1.register("c")
    assert ("node:n1", "run r1") not in ear.heard()


def test_renew_of_an_unregistered_process_says_so(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    assert not r1.renew().registered
    r1.register("a")
    assert r1.renew().registered


def test_mismatch_whatever_the_members_are_called(world: World) -> None:
    names = ("alpha", "beta", "gamma")
    members = [world.member("r1", name, of=3) for name in names]
    members[0].ask("a")
    assert members[1].ask("b").outcome == "MISMATCH"
    assert members[1].again(slices=("a",)).outcome == "GATHERING"
    reply = members[2].ask("b")
    assert (reply.outcome, reply.missing) == ("MISMATCH", 1)


def test_a_member_that_is_past_a_turn_ends_its_gathering(world: World, pair: tuple[Member, Member]) -> None:
    """Its cancel may be what a failover forgot: the others must not wait for it for ever."""
    m0, m1 = pair
    assert m1.ask("a").outcome == "GATHERING"
    m0.renew(done=1)
    assert m1.again().ended == "cancelled"
    m1.ask("a")
    m0.k = 2
    assert m0.ask("a").outcome == "GATHERING"
    assert m1.again().ended == "cancelled"
