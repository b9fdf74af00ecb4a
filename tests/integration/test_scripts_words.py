"""After a failover each member speaks for itself: its word on what Redis knows wrongly ends its part only."""

from __future__ import annotations

import pytest

from tests.support.scripts import Backup
from tests.support.world import LEASE_MS, WAIT_MS, Member, World

Pair = tuple[Member, Member]
WORDS = pytest.mark.parametrize("how", ["yield", "done", "next turn"])

pytestmark = pytest.mark.usefixtures("slices")


@pytest.fixture
def pair(world: World) -> Pair:
    return world.member("r1", "0", of=2), world.member("r1", "1", of=2)


def ask(pair: Pair, *slices: str) -> None:
    for member in pair:
        member.ask(*slices)


def begin(world: World, pair: Pair) -> None:
    """Both members are told that their turn has begun."""
    world.serve()
    assert [member.again().outcome for member in pair] == ["HELD", "HELD"]


def is_past(member: Member, how: str) -> None:
    """The member is past its turn, and says so in one of these ways."""
    match how:
        case "yield":
            member.yield_()
        case "done":
            member.renew(done=member.k)
        case _:
            assert member.ask(*member.slices).outcome == "GATHERING"


def begun_after(world: World, pair: Pair, state: str) -> Backup:
    """What Redis knew of a turn on `a` before it began; it has begun meanwhile."""
    m0, m1 = pair
    if state == "queued":
        (other := world.member("r2")).hold("a")
    m0.ask("a")
    backup = world.scripts.backup()
    m1.ask("a")
    if state != "gathering":
        backup = world.scripts.backup()
    assert m0.state == ("switching" if state == "gathering" else state)
    if state == "queued":
        other.yield_()
    begin(world, pair)
    return backup


# ---------------------------------------------------------------- what Redis knows as not begun


@WORDS
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("state", ["gathering", "queued", "switching"])
def test_who_is_past_a_turn_does_not_end_it_for_who_has_it(
    world: World, pair: Pair, state: str, settled: bool, how: str
) -> None:
    m0, m1 = pair
    world.new_epoch(begun_after(world, pair, state))
    world.member("r2").renew(done=1)
    if settled:
        world.settle()
    is_past(m0, how)
    assert world.state("r1/main/1") not in ("cancelled", "yielded")
    m1.beats()
    world.settle()
    world.serve()
    assert m1.beats()["state"] == "held"
    assert m1.yield_().outcome == "YIELDED"
    assert world.state("r1/main/1") == "yielded"


@WORDS
def test_who_was_not_told_of_its_turn_gets_it_without_who_is_past_it(
    world: World, pair: Pair, how: str
) -> None:
    """Redis had known the turn as begun, and the first member's part was quick."""
    m0, m1 = pair
    ask(pair, "a")
    backup = world.scripts.backup()
    world.serve()
    assert m0.again().outcome == "HELD"
    world.new_epoch(backup)
    is_past(m0, how)
    world.settle()
    world.serve()
    assert m1.again(k=1).outcome == "HELD"
    assert m1.yield_().outcome == "YIELDED"


def test_who_gave_up_ends_it_for_all(world: World, pair: Pair) -> None:
    """Its cancel is what Redis has forgotten."""
    m0, m1 = pair
    ask(pair, "a")
    backup = world.scripts.backup()
    m0.cancel()
    world.new_epoch(backup)
    m0.ask("a")
    m0.renew(done=1, gave_up=True)
    assert m1.again().ended == "cancelled"


def test_what_nobody_joins_any_more_lapses(world: World, pair: Pair) -> None:
    """Three gathered, and two of them are past it: nobody knows of the third."""
    m0, m1 = (world.member("r1", name, of=3) for name in "01")
    m0.ask("a")
    world.new_epoch()
    m0.renew(done=1)
    m1.k = 1
    m1.renew(done=1)
    world.advance(LEASE_MS + WAIT_MS + 4_000)
    assert m0.state == "expired"


def test_when_all_are_past_it_nothing_is_left_of_it(world: World, pair: Pair) -> None:
    world.new_epoch(begun_after(world, pair, "switching"))
    for member in pair:
        member.renew(done=1)
    assert pair[0].state == "cancelled"
    world.settle()
    assert world.slice("a").state == "free"


def test_a_slice_given_back_does_not_end_a_turn_that_redis_knows_as_a_switch(
    world: World, r1: Member, r2: Member
) -> None:
    r1.ask("a", "b")
    backup = world.scripts.backup()
    world.serve()
    r1.again()
    world.new_epoch(backup)
    assert r1.yield_("a").outcome == "PARTIAL"
    assert r1.beats()["state"] == "held"
    assert world.slice("a").state == "free"
    world.settle()
    assert r1.beats()["state"] == "held"
    r2.hold("a")
    assert set(r1.again().fences) == {"b"}


@pytest.mark.parametrize("settled", [False, True])
def test_what_one_has_given_back_another_still_has(world: World, pair: Pair, settled: bool) -> None:
    m0, m1 = pair
    ask(pair, "a", "b")
    backup = world.scripts.backup()
    begin(world, pair)
    m0.yield_("b")
    world.new_epoch(backup)
    if settled:
        world.settle()
    m0.beats()
    world.settle()
    world.serve()
    assert m0.beats()["state"] == m1.beats()["state"] == "held"
    assert world.slice("b").holder.id == m1.id  # type: ignore[union-attr]
    assert m1.yield_("b").outcome == "YIELDED"
    assert world.slice("b").state == "free"


# ---------------------------------------------------------------- what is kept


@WORDS
@pytest.mark.parametrize("stored", [False, True])
def test_who_is_past_a_turn_does_not_give_up_what_is_kept_for_it(
    world: World, pair: Pair, how: str, stored: bool
) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    if stored:
        backup = begun_after(world, pair, "queued")
    else:
        ask(pair, "a")
        begin(world, pair)
    world.new_epoch(backup)
    world.member("r2").renew(done=1)
    world.settle()
    assert world.slice("a").kept == m0.id
    is_past(m0, how)
    assert world.member("r3").ask("a").outcome == "QUEUED"
    assert m1.beats()["state"] == "held"
    world.settle()
    m0.renew(done=1)
    assert m1.yield_().outcome == "YIELDED"


@WORDS
def test_when_all_are_past_it_nothing_is_kept(world: World, pair: Pair, how: str) -> None:
    backup = world.scripts.backup()
    ask(pair, "a")
    begin(world, pair)
    world.new_epoch(backup)
    world.settle()
    is_past(pair[0], how)
    assert world.slice("a").kept
    is_past(pair[0], "done")
    assert world.slice("a").kept, "twice the same word is one"
    is_past(pair[1], "done")
    assert not world.slice("a").kept


def test_who_asks_again_does_not_end_the_turn_of_who_was_told(world: World, pair: Pair) -> None:
    m0, m1 = pair
    world.new_epoch(begun_after(world, pair, "queued"))
    world.member("r2").renew(done=1)
    world.settle()
    assert m0.again().outcome == "QUEUED"
    assert "kept" in m0.again().reason
    assert m1.beats()["state"] == "held"
    assert m0.again().fences == m1.fences


def test_when_nobody_was_told_it_begins_as_soon_as_all_have_asked(world: World, pair: Pair) -> None:
    m0, m1 = pair
    world.new_epoch(begun_after(world, pair, "queued"))
    world.member("r2").renew(done=1)
    world.settle()
    assert m0.again().outcome == "QUEUED"
    assert m1.again().outcome == "SWITCHING"
    begin(world, pair)


def test_what_nobody_has_claimed_is_kept_after_the_next_failover_too(world: World, pair: Pair) -> None:
    backup = world.scripts.backup()
    ask(pair, "b")
    begin(world, pair)
    world.new_epoch(backup)
    world.settle()
    for _ in range(2):
        world.new_epoch()
        assert world.member("r2").ask("b").outcome == "QUEUED"
        world.settle()
        assert world.slice("b").kept == "r1/main/1"
    assert pair[1].beats()["state"] == "held"
    assert pair[0].beats()["state"] == "held"


def test_what_all_have_given_up_is_not_kept_after_the_next_failover(world: World, pair: Pair) -> None:
    backup = world.scripts.backup()
    ask(pair, "b")
    begin(world, pair)
    world.new_epoch(backup)
    world.settle()
    for member in pair:
        member.yield_()
    world.new_epoch()
    world.settle()
    assert world.slice("b").kept == ""


def test_a_later_turn_that_is_given_up_gives_nothing_else_up(world: World, pair: Pair) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    ask(pair, "a")
    begin(world, pair)
    world.new_epoch(backup)
    world.settle()
    m0.k = 2
    m0.cancel()
    assert world.slice("a").kept == "r1/main/1"
    assert m1.beats()["state"] == "held"


# ---------------------------------------------------------------- who has a word


def test_who_takes_no_part_in_a_turn_ends_nothing_of_it(world: World, pair: Pair) -> None:
    m0, m1 = pair
    ask(pair, "a")
    begin(world, pair)
    late = world.member("r1", "2", of=2)
    assert late.ask("a").outcome == "LATE"
    late.renew(done=1)
    assert late.yield_().outcome == "ALREADY"
    late.renew(late.part())
    m0.yield_()
    assert m1.beats()["state"] == "held"


def test_who_waited_joins_the_turn_that_another_has_re_asserted(world: World, pair: Pair) -> None:
    m0, m1 = pair
    backup = world.scripts.backup()
    ask(pair, "a")
    world.serve()
    assert m1.again().outcome == "HELD"
    world.new_epoch(backup)
    assert m1.beats()["state"] == "held"
    assert m0.again().outcome == "SWITCHING"
    world.settle()
    assert m0.again().fences == m1.fences
    assert world.picture().gathering == ()


def test_who_comes_back_with_fences_of_the_past_loses_only_its_part(world: World, pair: Pair) -> None:
    """Both have asked again, one of them by a call that was long under way: their turn was granted anew."""
    m0, m1 = pair
    world.new_epoch(begun_after(world, pair, "queued"))
    world.member("r2").renew(done=1)
    stale = m0.part()
    world.settle()
    m0.again()
    m1.again()
    begin(world, pair)
    assert m1.fences["a"] > stale["fences"]["a"]
    assert m0.renew(stale).parts[0]["state"] == "LOST"
    assert m1.beats()["state"] == "held"
    assert m1.yield_().outcome == "YIELDED"
