"""Turns on slices without agents: asking, waiting, order."""

from __future__ import annotations

import pytest

from tests.support.scripts import START_MS
from tests.support.world import LEASE_MS, World


@pytest.fixture(autouse=True)
def slices(world: World) -> None:
    world.declare("a")
    world.declare("b")


# ---------------------------------------------------------------- asking


def test_a_free_slice_is_held_at_once(world: World) -> None:
    reply = world.member("r1").ask("a", phase="train")
    assert reply.outcome == "HELD"
    assert reply.fences == {"a": START_MS * 1024}
    assert (reply.lease_ms, reply.moved) == (LEASE_MS, False)
    held = world.slice("a").holder
    assert held is not None
    assert (held.id, held.job, held.phase, held.lease_left_ms) == ("r1/main/1", "job-r1", "train", LEASE_MS)


def test_a_repeated_ask_changes_nothing(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    first, queued = r1.ask("a"), r2.ask("a")
    before = world.dump()
    assert (r1.again(), r2.again()) == (first, queued)
    assert world.dump() == before


def test_one_holder_at_a_time_and_rising_fences(world: World) -> None:
    fences: list[int] = []
    members = [world.member(f"r{i}") for i in range(5)]
    for member in members:
        member.ask("a")
    for i, member in enumerate(members):
        assert member.again().outcome == "HELD"
        assert [other.again().outcome for other in members[i + 1 :]] == ["QUEUED"] * (4 - i)
        fences.append(member.fences["a"])
        assert member.yield_().outcome == "YIELDED"
    assert fences == sorted(set(fences))


def test_fences_use_raw_time(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    first = r1.fences["a"]
    world.scripts.jump(3_600_000)
    r1.yield_()
    r1.hold("a")
    assert r1.fences["a"] == first + 3_600_000 * 1024


def test_no_such_slice_leaves_nothing(world: World) -> None:
    before = world.dump()
    reply = world.member("r1").ask("a", "nowhere")
    assert (reply.outcome, reply.slice) == ("NO_SUCH_SLICE", "nowhere")
    assert world.dump() == before


def test_slices_of_one_turn_come_together_or_not_at_all(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    assert r2.ask("a", "b").outcome == "QUEUED"
    assert world.slice("b").state == "free"
    assert world.queue("a") == world.queue("b") == ["r2/main/1"]
    r1.yield_()
    reply = r2.again()
    assert reply.outcome == "HELD"
    assert set(reply.fences) == {"a", "b"}


def test_a_small_request_does_not_starve_a_large_one(world: World) -> None:
    """Behind a request for both slices, one for a free slice waits; only what cannot start is passed over."""
    r1, both, r3 = world.member("r1"), world.member("r2"), world.member("r3")
    r1.hold("a")
    both.ask("a", "b")
    assert r3.ask("b").outcome == "QUEUED"
    r1.yield_()
    assert both.again().outcome == "HELD"
    assert r3.again().outcome == "QUEUED"


@pytest.mark.parametrize("blocked", [False, True])
def test_it_must_be_first_in_each_of_its_queues(world: World, blocked: bool) -> None:
    """Behind one that waits for another slice: it waits as well, unless that slice is blocked."""
    world.declare("c", "n1") if blocked else world.declare("c")
    world.scripts.advance(11_000)
    if not blocked:
        world.member("r0").hold("c")
    assert world.member("r1").ask("b", "c").outcome == "QUEUED"
    assert world.member("r2").ask("a", "b").outcome == ("HELD" if blocked else "QUEUED")


def test_lanes_of_one_run_take_turns_on_their_own(world: World) -> None:
    main, rollout = world.member("r1"), world.member("r1", lane="rollout")
    main.hold("a")
    rollout.hold("b")
    assert rollout.yield_().outcome == "YIELDED"
    assert main.beats()["state"] == "held"
    assert rollout.ask("a").outcome == "QUEUED"
    main.yield_()
    assert rollout.again().outcome == "HELD"


# ---------------------------------------------------------------- order


def test_first_come_first_served(world: World) -> None:
    holder = world.member("r0")
    holder.hold("a")
    waiters = [world.member(f"w{i}") for i in range(4)]
    assert [waiter.ask("a").position for waiter in waiters] == [0, 1, 2, 3]
    assert world.queue("a") == [waiter.id for waiter in waiters]
    waiters[1].cancel()
    assert [waiters[i].again().position for i in (0, 2, 3)] == [0, 1, 2]


def test_position_is_that_in_the_longest_way(world: World) -> None:
    world.member("r0").hold("a", "b")
    world.member("w1").ask("b")
    world.member("w2").ask("b")
    assert world.member("w3").ask("a", "b").position == 2


@pytest.mark.parametrize(("after_ms", "first"), [(29_999, "high"), (30_001, "low")])
def test_priority_is_a_head_start_of_30_s_a_step(world: World, after_ms: int, first: str) -> None:
    holder, low, high = world.member("r0"), world.member("low"), world.member("high")
    holder.hold("a")
    low.ask("a")
    keep = after_ms
    while keep > 0:
        world.scripts.advance(min(keep, 4_000))
        holder.beats()
        low.beats()
        keep -= 4_000
    high.ask("a", priority=1)
    holder.yield_()
    assert world.slice("a").holder is not None
    assert world.slice("a").holder.run == first  # type: ignore[union-attr]


def test_negative_priority_waits_behind(world: World) -> None:
    holder, low, plain = world.member("r0"), world.member("low"), world.member("plain")
    holder.hold("a")
    low.ask("a", priority=-1)
    plain.ask("a")
    assert world.queue("a") == [plain.id, low.id]


def test_ties_go_by_arrival_whatever_the_names(world: World) -> None:
    world.member("r0").hold("a")
    names = ["z", "a", "m", "b", "y"]
    for name in names:
        world.member(name).ask("a")
    assert world.queue("a") == [f"{name}/main/1" for name in names]


def test_a_wait_that_redis_forgot_counts(world: World) -> None:
    world.member("r0").hold("a")
    world.scripts.advance(12_000)
    world.member("new").ask("a", waited_ms=4_000)
    world.member("old").ask("a", waited_ms=9_000)
    world.member("older").ask("a", waited_ms=9_001)
    assert world.queue("a") == ["older/main/1", "old/main/1", "new/main/1"]


def test_queued_names_the_next_deadline(world: World) -> None:
    holder, first, second = world.member("r0"), world.member("r1"), world.member("r2")
    holder.hold("a")
    world.scripts.advance(3_000)
    assert first.ask("a", wait_ms=90_000).next_ms == LEASE_MS - 3_000
    assert second.ask("a", wait_ms=90_000).next_ms == 0, "only the first in line need be there when it passes"


def test_queued_says_why(world: World) -> None:
    world.member("r0").hold("a")
    reply = world.member("r1").ask("a")
    assert "a is held" in reply.reason
    assert "r0" in reply.reason
