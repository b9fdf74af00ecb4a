"""A new life of Redis for turns of several members, for parts given back, and for slices without agents."""

from __future__ import annotations

import itertools

import pytest

from tests.support.world import LEASE_MS, Member, World

pytestmark = pytest.mark.usefixtures("slices")


def hold(pair: tuple[Member, Member], *slices: str) -> None:
    m0, m1 = pair
    m0.ask(*slices)
    m1.hold(*slices)
    assert m0.again().outcome == "HELD"


@pytest.fixture
def pair(world: World) -> tuple[Member, Member]:
    return world.member("r1", "0", of=2), world.member("r1", "1", of=2)


def test_all_members_re_assert_a_turn(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    hold(pair, "a")
    world.new_epoch(backup)
    assert m0.beats()["state"] == "held"
    world.settle()
    assert m1.beats()["state"] == "held"
    for _ in range(2 * LEASE_MS // 4_000):
        world.advance(4_000)
        assert (m0.beats()["state"], m1.beats()["state"]) == ("held", "held")
    assert m0.yield_().outcome == "PARTIAL"
    assert m1.yield_().outcome == "YIELDED"


def test_a_member_that_does_not_come_back_ends_the_turn_after_a_lease(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, _ = pair
    backup = world.scripts.backup()
    hold(pair, "a")
    world.new_epoch(backup)
    m0.beats()
    for _ in range(LEASE_MS // 4_000):
        world.advance(4_000)
        assert m0.beats()["state"] == "held"
    for _ in range(LEASE_MS // 4_000):
        world.advance(4_000)
        m0.beats()
    assert m0.beats()["outcome"] == "expired"
    assert world.slice("a").state == "free"


def test_a_re_asserted_turn_ends_the_earlier_one_for_all_members(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, m1 = pair
    hold(pair, "p")
    backup = world.scripts.backup()
    m0.yield_()
    m1.yield_()
    hold(pair, "a")
    world.new_epoch(backup)
    assert m0.beats()["state"] == "held"
    assert world.state("r1/main/1") == "superseded"
    assert world.slice("p").state == "free"
    assert m1.beats()["state"] == "held"


def test_the_first_lease_of_a_new_epoch_is_theirs_too(world: World, pair: tuple[Member, Member]) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    hold(pair, "a")
    world.new_epoch(backup)
    for _ in range(LEASE_MS // 4_000):
        m0.beats()
        world.advance(4_000)
    world.new_epoch()
    for _ in range(3):
        assert m0.beats()["state"] == "held"
        world.advance(4_000)
    assert m1.beats()["state"] == "held"


def test_a_member_that_had_yielded_says_so_to_the_re_asserted_turn(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    hold(pair, "a")
    m1.yield_()
    world.new_epoch(backup)
    assert m0.beats()["state"] == "held"
    m1.renew(done=1)
    assert m0.beats()["state"] == "held"
    assert m0.yield_().outcome == "YIELDED"
    assert world.slice("a").state == "free"


def test_a_member_that_had_yielded_comes_before_the_one_that_holds(
    world: World, pair: tuple[Member, Member]
) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    hold(pair, "a")
    m1.yield_()
    world.new_epoch(backup)
    m1.renew(done=1)
    assert m0.beats()["state"] == "held"
    world.settle()
    assert m0.yield_().outcome in ("YIELDED", "PARTIAL")
    m1.renew(done=1)
    assert world.state("r1/main/1") == "yielded"


def test_only_what_was_not_given_back_is_re_asserted(world: World, r1: Member, r2: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("a", "b")
    r1.yield_("a")
    r2.hold("a")
    world.new_epoch(backup)
    assert r1.beats()["state"] == "held"
    assert r2.beats()["state"] == "held"
    world.settle()
    assert (r1.beats()["state"], r2.beats()["state"]) == ("held", "held")
    assert set(r1.again().fences) == {"b"}
    assert set(r2.again().fences) == {"a"}


@pytest.mark.parametrize("order", list(itertools.permutations(("r1", "r2", "settle"))))
def test_a_forgotten_partial_yield_is_told_again(
    world: World, r1: Member, r2: Member, order: tuple[str, ...]
) -> None:
    r1.hold("a", "b")
    backup = world.scripts.backup()
    r1.yield_("a")
    r2.hold("a")
    world.new_epoch(backup)
    for what in order:
        match what:
            case "settle":
                world.settle()
            case _:
                assert {"r1": r1, "r2": r2}[what].beats()["state"] == "held"
    assert (r1.beats()["state"], r2.beats()["state"]) == ("held", "held")
    assert set(r1.again().fences) == {"b"}


def test_a_slice_without_agents_waits_for_one_lease(world: World, r1: Member, r2: Member) -> None:
    world.new_epoch()
    world.beat()
    assert r2.ask("p").outcome == "QUEUED"
    for _ in range(LEASE_MS // 4_000 - 1):
        world.advance(4_000)
        assert r2.again().outcome == "QUEUED"
    world.advance(4_001)
    assert r2.again().outcome == "HELD"


def test_a_forgotten_turn_without_agents_is_re_asserted(world: World, r1: Member, r2: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("p")
    world.new_epoch(backup)
    assert r2.ask("p", wait_ms=10 * LEASE_MS).outcome == "QUEUED"
    world.advance(LEASE_MS // 2)
    assert r1.beats()["state"] == "held"
    for _ in range(LEASE_MS // 4_000):
        world.advance(4_000)
        assert r1.beats()["state"] == "held"
    assert r1.again().fences == r1.fences
    assert r2.again().outcome == "QUEUED"


def test_a_forgotten_turn_without_agents_comes_too_late_after_a_lease(
    world: World, r1: Member, r2: Member
) -> None:
    backup = world.scripts.backup()
    r1.hold("p")
    world.new_epoch(backup)
    world.beat()
    world.advance(LEASE_MS + 1)
    assert r1.beats()["state"] == "LOST"
    assert r2.ask("p").outcome == "HELD"
    assert r2.fences["p"] > r1.fences["p"]
