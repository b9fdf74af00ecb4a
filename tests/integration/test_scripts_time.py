"""Leases, waiting leases and pool time."""

from __future__ import annotations

import pytest
import redis

from slicelock import wire
from tests.support.world import LEASE_MS, WAIT_MS, Member, World

HOUR_MS = 3_600_000


pytestmark = pytest.mark.usefixtures("agentless_slices")


@pytest.fixture
def holder(world: World) -> Member:
    made = world.member("r0")
    made.hold("a")
    return made


# ---------------------------------------------------------------- leases


def test_a_lease_lasts_exactly_as_long_as_it_says(world: World, holder: Member) -> None:
    world.scripts.advance(LEASE_MS)
    assert holder.state == "held"
    world.scripts.advance(1)
    assert holder.state == "expired"
    assert world.slice("a").state == "free"


def test_a_renewed_lease_lasts_anew(world: World, holder: Member) -> None:
    world.scripts.advance(LEASE_MS - 1)
    assert holder.beats()["state"] == "held"
    world.scripts.advance(LEASE_MS)
    assert holder.state == "held"
    world.scripts.advance(1)
    assert holder.state == "expired"


def test_asking_again_renews_as_well(world: World, holder: Member) -> None:
    world.scripts.advance(LEASE_MS - 1)
    holder.again()
    world.scripts.advance(LEASE_MS)
    assert holder.state == "held"


def test_the_holder_learns_of_its_loss_with_the_reason(world: World, holder: Member) -> None:
    world.scripts.advance(LEASE_MS + 1)
    part = holder.beats()
    assert (part["state"], part["outcome"]) == ("LOST", "expired")
    assert "member 0" in part["reason"]
    assert holder.again().ended == "expired"


def test_the_next_is_granted_when_a_lease_expires_without_any_traffic_of_its_own(
    world: World, holder: Member
) -> None:
    waiter = world.member("r1")
    waiter.ask("a", wait_ms=4 * LEASE_MS)
    world.scripts.advance(LEASE_MS + 1)
    assert waiter.state == "held"


@pytest.mark.parametrize("lease_ms", [1_000, 600_000])
def test_each_member_has_the_lease_it_asked_for(world: World, lease_ms: int) -> None:
    r1 = world.member("r1")
    r1.lease_ms = lease_ms
    r1.wait_ms = min(lease_ms, WAIT_MS)
    r1.hold("b")
    world.scripts.advance(lease_ms)
    assert r1.state == "held"
    world.scripts.advance(1)
    assert r1.state == "expired"


# ---------------------------------------------------------------- waiting leases


def test_a_waiter_that_is_not_heard_of_goes(world: World, holder: Member) -> None:
    waiter = world.member("r1")
    waiter.ask("a", "b")
    world.scripts.advance(WAIT_MS)
    assert waiter.state == "queued"
    world.scripts.advance(1)
    assert waiter.state == "expired"
    assert world.queue("a") == world.queue("b") == []
    assert waiter.beats()["outcome"] == "expired"


def test_scenario_03_a_waiter_that_is_heard_of_waits_for_ever(world: World, holder: Member) -> None:
    """Age never removes a waiter."""
    waiter = world.member("r1")
    waiter.ask("a")
    for _ in range(160):
        world.scripts.advance(4_000)
        holder.beats()
        assert waiter.again().position == 0
    assert world.record(world.keys.run("r1"))["newest:main"] == "1", "nor is its run forgotten"
    holder.yield_()
    assert waiter.again().outcome == "HELD"


def test_a_waiter_may_renew_instead_of_asking(world: World, holder: Member) -> None:
    waiter = world.member("r1")
    waiter.ask("a")
    for _ in range(10):
        world.scripts.advance(WAIT_MS - 1)
        holder.beats()
        assert waiter.beats()["state"] == "queued"


@pytest.mark.parametrize("learns", ["acquires", "renews", "never"])
def test_the_lease_of_a_waiter_begins_when_it_learns_of_its_grant(
    world: World, holder: Member, learns: str
) -> None:
    """One that was stopped before that has no more time than any waiter."""
    waiter = world.member("r1")
    waiter.ask("a")
    world.scripts.advance(WAIT_MS - 1)
    holder.yield_()
    world.scripts.advance(WAIT_MS)
    assert waiter.state == "held"
    if learns != "never":
        assert waiter.again().outcome == "HELD" if learns == "acquires" else waiter.beats()["state"] == "held"
        world.scripts.advance(LEASE_MS)
        assert waiter.state == "held"
    world.scripts.advance(1)
    assert waiter.state == "expired"


def test_a_member_that_does_not_learn_of_its_turn_ends_it_for_all(world: World) -> None:
    world.declare("b")
    m0, m1 = world.member("r2", "0", of=2), world.member("r2", "1", of=2)
    m0.ask("b")
    assert m1.ask("b").outcome == "HELD"
    world.scripts.advance(WAIT_MS)
    assert m1.state == "held"
    world.scripts.advance(1)
    assert m1.state == "expired"


def test_scenario_01_dead_heads_hold_nobody_up(world: World, holder: Member) -> None:
    """Two dead heads, one live waiter."""
    dead, live = [world.member("d1"), world.member("d2")], world.member("live")
    for waiter in (*dead, live):
        waiter.ask("a")
    for _ in range(4):
        world.scripts.advance(4_000)
        live.again()
        holder.beats()
    holder.yield_()
    assert live.again().outcome == "HELD"
    assert [waiter.state for waiter in dead] == ["expired", "expired"]
    assert live.fences["a"] > holder.fences["a"]
    assert world.queue("a") == []


def test_a_waiter_past_its_deadline_is_ended_and_not_started(world: World, holder: Member) -> None:
    """Even when the yield comes in the very script that finds it late, after many others to be reaped."""
    for i in range(200):
        world.member(f"d{i}").ask("a")
    live = world.member("live")
    live.ask("a", wait_ms=10 * WAIT_MS)
    world.scripts.jump(4_000)
    holder.beats()
    world.scripts.jump(4_000)
    holder.beats()
    world.scripts.jump(4_000)
    holder.beats()
    world.scripts.jump(4_000)
    holder.yield_()
    started = {event["run"] for event in world.events("held")}
    for _ in range(10):
        world.scripts.advance(1)
    assert live.again().outcome == "HELD"
    assert {event["run"] for event in world.events("held")} == {"r0", "live"} == started | {"live"}


def test_scenario_04_a_late_yield_disturbs_nobody(world: World, holder: Member) -> None:
    """The old holder's yield does nothing to the new one."""
    second, third = world.member("r1"), world.member("r2")
    second.ask("a", wait_ms=2 * LEASE_MS)
    world.scripts.advance(LEASE_MS + 1)
    assert second.again().outcome == "HELD"
    third.ask("a")
    assert holder.yield_().outcome == "LOST"
    assert world.slice("a").holder.id == second.id  # type: ignore[union-attr]
    assert third.again().outcome == "QUEUED"


# ---------------------------------------------------------------- pool time


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 24 * HOUR_MS, 5_001, -1])
def test_a_jump_of_the_clock_expires_nobody(world: World, holder: Member, jump_ms: int) -> None:
    waiter = world.member("r1")
    waiter.ask("a")
    world.scripts.jump(jump_ms)
    world.scripts.tick()
    world.scripts.advance(WAIT_MS)
    assert (holder.state, waiter.state) == ("held", "queued")
    world.scripts.advance(1)
    assert (holder.state, waiter.state) == ("held", "expired")
    [event] = world.events("clock")
    assert event["step_ms"] == str(jump_ms)


def test_steps_up_to_5_s_count(world: World, holder: Member) -> None:
    for _ in range(LEASE_MS // 5_000):
        world.scripts.jump(5_000)
        world.member("x").cancel(1)
    assert holder.state == "held"
    world.scripts.advance(1)
    assert holder.state == "expired"
    assert world.events("clock") == []


def test_the_clock_running_backwards_for_good_stops_nothing(world: World, holder: Member) -> None:
    world.scripts.jump(-HOUR_MS)
    fence = holder.fences["a"]
    for _ in range(3):
        holder.yield_()
        holder.hold("a")
        assert holder.fences["a"] == fence + 1, "the stored fence is ahead of the clock"
        fence += 1
    world.scripts.advance(LEASE_MS + 1)
    assert holder.state == "expired"


def test_order_in_the_queue_survives_clock_jumps(world: World, holder: Member) -> None:
    waiters = [world.member(f"w{i}") for i in range(4)]
    for waiter, jump_ms in zip(waiters, (0, -HOUR_MS, HOUR_MS, -1), strict=True):
        world.scripts.jump(jump_ms)
        waiter.ask("a")
    assert world.queue("a") == [waiter.id for waiter in waiters]


def test_an_outage_expires_nobody(world: World, holder: Member) -> None:
    """Nobody called for a day: the first call after it finds everything as it was."""
    waiter = world.member("r1")
    waiter.ask("a")
    world.scripts.jump(24 * HOUR_MS)
    assert waiter.again().outcome == "QUEUED"
    assert holder.beats()["state"] == "held"


def test_status_changes_nothing_even_when_things_are_due(world: World, holder: Member) -> None:
    world.scripts.jump(4_000)
    before = world.dump(), world.record(world.keys.meta)
    world.picture()
    assert (world.dump(), world.record(world.keys.meta)) == before


# ---------------------------------------------------------------- a new epoch


def notice(world: World) -> None:
    """Some agent beats, and so the new life of the server is noticed."""
    world.run(wire.Beat("watcher", "b", "v", 10_000, {"slices": {}}))


def test_nothing_is_reaped_in_the_first_lease_of_a_new_epoch(world: World, holder: Member) -> None:
    waiter = world.member("r1")
    waiter.ask("a")
    world.scripts.advance(4_000)
    holder.beats()
    world.new_epoch()
    notice(world)
    world.scripts.advance(LEASE_MS)
    assert (holder.state, waiter.state) == ("held", "queued")
    world.scripts.advance(1)
    assert (holder.state, waiter.state) == ("expired", "expired")


def test_the_first_lease_counts_from_the_first_that_is_due(world: World, holder: Member) -> None:
    """Nobody is heard of after a restart: still nothing expires before a lease has passed in the new life."""
    world.scripts.advance(LEASE_MS)
    world.new_epoch()
    world.scripts.advance(LEASE_MS)
    assert holder.state == "held"
    world.scripts.advance(LEASE_MS)
    assert holder.state == "expired"


def test_the_first_lease_is_the_longest_that_anyone_asked_for(world: World, holder: Member) -> None:
    long = world.member("r2")
    long.lease_ms = 5 * LEASE_MS
    long.hold("b")
    world.new_epoch()
    world.scripts.advance(4 * LEASE_MS)
    assert (holder.state, long.state) == ("held", "held")


def test_a_restart_is_an_event_and_counts_the_epoch(world: World, holder: Member) -> None:
    assert holder.renew().epoch == 1
    world.scripts.new_run_id("second")
    assert holder.renew().epoch == 2
    assert holder.renew().epoch == 2
    world.scripts.new_run_id("first")
    assert holder.renew().epoch == 3
    assert [event["epoch"] for event in world.events("epoch")] == ["2", "3"]


@pytest.mark.parametrize("how", ["yield", "part", "cancel", "revoke", "gone", "next turn", "renew"])
def test_nothing_is_granted_in_a_new_epoch_that_nobody_has_noticed(
    world: World, holder: Member, how: str
) -> None:
    """Whatever frees a slice: the waiter does not start before the slice has settled."""
    holder.register("a")
    waiter = world.member("r1")
    waiter.ask("a")
    world.new_epoch()
    match how:
        case "yield":
            holder.yield_()
        case "part":
            holder.yield_("a")
        case "cancel":
            holder.cancel()
        case "revoke":
            world.run(wire.Revoke(holder.id))
        case "gone":
            holder.register("a", gone=True)
        case "next turn":
            holder.ask("b")
        case _:
            holder.renew(done=1)
    assert world.state("r0/main/1") in ("yielded", "cancelled", "revoked", "holder_died")
    assert waiter.state == "queued"
    assert waiter.again().outcome == "QUEUED"
    assert world.slice("a").settling


# ---------------------------------------------------------------- many


def test_thousands_of_leases_that_expire_at_once_are_all_reaped(world: World, holder: Member) -> None:
    """In bounded batches; the agent's beat says whether more is due."""
    for i in range(1_000):
        world.member(f"w{i}").ask("a")
    for _ in range(4):
        world.scripts.jump(4_000)
        holder.beats()
    beat = wire.Beat("n", "b", "v", 10_000, {"slices": {}})
    calls = 1
    while world.run(beat).more:
        calls += 1
    assert calls <= 1_000 // 64 + 2
    assert world.queue("a") == []


def test_a_script_that_fails_takes_no_deadline_with_it(world: World, holder: Member) -> None:
    """What is overdue is dealt with before anything that may fail, as if by a call of its own."""
    world.scripts.advance(LEASE_MS)
    world.scripts.jump(1)
    with pytest.raises(redis.ResponseError):
        world.scripts.call("renew", ["r1", "j", "p", "60000", "15000", "no JSON"])
    assert (holder.state, world.slice("a").state) == ("expired", "free")
    assert len(world.events("ended")) == 1
