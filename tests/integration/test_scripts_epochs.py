"""A new life of Redis: what it forgot comes back from those who know it, and until then nothing starts."""

from __future__ import annotations

import pytest

from tests.support.world import LEASE_MS, Agent, Ear, Member, World, is_wanted

PATIENCE_MS = 2_000

pytestmark = pytest.mark.usefixtures("slices")


# ---------------------------------------------------------------- settling


def test_a_stored_turn_is_not_told_held_before_it_is_confirmed(world: World, n1: Agent, r1: Member) -> None:
    r1.hold("a")
    fences = r1.fences
    world.new_epoch()
    reply = r1.again()
    assert reply.outcome == "SWITCHING"
    assert "settles" in reply.reason
    assert r1.beats()["state"] == "held", "who was told goes on"
    world.scripts.advance(PATIENCE_MS - 1)
    n1.beat()
    assert r1.again().outcome == "SWITCHING"
    world.scripts.advance(1)
    n1.beat()
    assert r1.again().fences == fences
    assert world.state(r1.id) == "held"


def test_it_settles_only_when_all_nodes_have_beaten(world: World, n1: Agent, r1: Member) -> None:
    world.new_epoch()
    world.scripts.advance(PATIENCE_MS + 1)
    n1.beat()
    assert (world.slice("a").settling, world.slice("b").settling) == (False, True)
    world.agent("n2").beat()
    assert not world.slice("b").settling


def test_beats_of_the_last_epoch_do_not_count(world: World, n1: Agent) -> None:
    n1.beat()
    world.new_epoch()
    world.scripts.tick()
    world.agent("n2").beat()
    world.scripts.advance(3 * PATIENCE_MS)
    assert world.slice("a").settling
    world.new_epoch()
    n1.beat()
    world.new_epoch()
    world.agent("n2").beat()
    world.scripts.advance(3 * PATIENCE_MS)
    assert world.slice("a").settling
    assert world.slice("b").settling


def test_a_node_with_something_under_way_does_not_count(world: World, n1: Agent, r1: Member) -> None:
    r1.hold("a")
    world.new_epoch()
    n1.shown["a"].doing = "evict"
    world.advance(5 * PATIENCE_MS)
    assert world.slice("a").settling
    n1.shown["a"].doing = ""
    n1.beat()
    assert not world.slice("a").settling


def test_a_beat_with_nothing_under_way_and_then_one_with_something_does_not_count(
    world: World, n1: Agent, r1: Member
) -> None:
    r1.hold("a")
    world.new_epoch()
    n1.beat()
    n1.shown["a"].doing = "evict"
    n1.beat()
    world.scripts.advance(2 * PATIENCE_MS)
    assert world.slice("a").settling


def test_agents_begin_no_step_while_it_settles(world: World, n1: Agent, r1: Member) -> None:
    r1.ask("a")
    world.new_epoch()
    wanted = n1.wanted()["a"]
    assert (wanted["state"], int(wanted["settling"])) == ("switching", 1)
    assert not is_wanted(wanted)
    assert n1.report("a", int(wanted["fence"])) == "STALE"
    world.settle()
    assert is_wanted(n1.wanted()["a"])


def test_nothing_starts_while_it_settles(world: World, r1: Member, r2: Member, ear: Ear) -> None:
    world.new_epoch()
    reply = r1.ask("a")
    assert reply.outcome == "QUEUED"
    assert "settles" in reply.reason
    ear.heard()
    world.settle()
    assert r1.again().outcome == "SWITCHING"
    assert ("node:n1", "grant a") in ear.heard()


def test_a_request_that_waits_for_a_settling_slice_is_passed_over(
    world: World, n1: Agent, r1: Member
) -> None:
    world.agent("n2").alive = False
    world.new_epoch()
    r1.ask("a", "b")
    world.advance(PATIENCE_MS + 1)
    world.advance(1)
    assert (world.slice("a").settling, world.slice("b").settling) == (False, True)
    assert world.member("r2").ask("a").outcome == "SWITCHING"
    assert r1.again().outcome == "QUEUED"


def test_a_restart_with_everything_is_seen_by_nobody_who_waits_or_holds(
    world: World, r1: Member, r2: Member
) -> None:
    r1.hold("a", "b")
    r2.ask("b")
    before = world.dump()
    world.new_epoch()
    world.settle()
    assert r1.beats()["state"] == "held"
    assert r2.again().outcome == "QUEUED"
    same = {
        name: value
        for name, value in world.dump().items()
        if name.split(":")[0] in ("request", "queue", "ready")
    }
    assert same == {name: before[name] for name in same}


# ---------------------------------------------------------------- grants that Redis forgot


def test_a_forgotten_turn_is_re_asserted_by_its_renew(
    world: World, n1: Agent, r1: Member, r2: Member
) -> None:
    backup = world.scripts.backup()
    r1.hold("a", phase="train")
    world.new_epoch(backup)
    assert r1.beats()["state"] == "held"
    assert world.slice("a").holder.id == r1.id  # type: ignore[union-attr]
    assert world.slice("a").fence == r1.fences["a"]
    assert r2.ask("a").outcome == "QUEUED"
    world.settle()
    assert r1.again().fences == r1.fences
    assert r1.yield_().outcome == "YIELDED"
    assert r2.again().outcome == "SWITCHING"
    assert world.slice("a").fence > r1.fences["a"]
    assert world.events("reasserted")[-1]["run"] == "r1"


def test_re_asserting_twice_changes_nothing(world: World, r1: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("a", "b")
    world.new_epoch(backup)
    r1.beats()
    before = world.dump()
    assert r1.beats()["state"] == "held"
    assert world.dump() == before


def test_a_forgotten_turn_is_kept_where_the_nodes_agree_on_it(
    world: World, n1: Agent, r1: Member, r2: Member
) -> None:
    backup = world.scripts.backup()
    r1.hold("b")
    world.new_epoch(backup)
    world.settle()
    view = world.slice("b")
    assert (view.kept, view.state, view.fence) == (r1.id, "free", r1.fences["b"])
    reply = r2.ask("b")
    assert reply.outcome == "QUEUED"
    assert "kept" in reply.reason
    assert r1.beats()["state"] == "held", "its renew claims it"
    assert world.slice("b").kept == ""
    assert r1.again().fences == r1.fences
    assert r2.again().outcome == "QUEUED"


@pytest.mark.parametrize("how", ["yield", "done", "next turn", "cancel"])
def test_a_kept_slice_is_given_up(world: World, r1: Member, r2: Member, how: str) -> None:
    backup = world.scripts.backup()
    r1.hold("a")
    world.new_epoch(backup)
    world.settle()
    r2.ask("a")
    match how:
        case "yield":
            r1.yield_()
        case "done":
            r1.renew(done=1)
        case "cancel":
            r1.cancel()
        case _:
            assert r1.ask("a").outcome == "QUEUED"
    assert world.slice("a").kept == ""
    assert r2.again().outcome == "SWITCHING"


def test_a_kept_slice_is_kept_for_one_lease(world: World, r1: Member, r2: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("a")
    world.new_epoch(backup)
    world.settle()
    r2.ask("a")
    for _ in range(LEASE_MS // 4_000):
        world.advance(4_000)
        assert r2.again().outcome == "QUEUED"
    world.advance(4_000)
    assert r2.again().outcome == "SWITCHING"
    assert r1.beats() | {"reason": ""} == r1.beats() | {"reason": ""}
    assert r1.beats()["state"] == "LOST"


def test_a_kept_slice_of_a_stored_waiter_is_not_granted_anew(world: World, r1: Member, r2: Member) -> None:
    """Its turn may be running: only its own word tells, and until then a new grant would end it."""
    r2.hold("a")
    r1.ask("a")
    backup = world.scripts.backup()
    r2.yield_()
    world.serve()
    assert r1.again().outcome == "HELD"
    world.new_epoch(backup)
    r2.renew(done=1)
    world.settle()
    assert (world.state(r1.id), world.slice("a").kept) == ("queued", r1.id)
    assert r1.beats()["state"] == "held"
    assert r1.again().fences == r1.fences
    assert world.slice("a").fence == r1.fences["a"]


def test_a_kept_slice_of_a_waiter_that_was_never_told_is_granted_when_it_asks(
    world: World, r1: Member, r2: Member
) -> None:
    r2.hold("a")
    r1.ask("a")
    backup = world.scripts.backup()
    r2.yield_()
    world.serve()
    world.new_epoch(backup)
    r2.renew(done=1)
    world.settle()
    assert r1.beats()["state"] == "queued"
    assert r1.again().outcome == "SWITCHING"
    assert world.slice("a").kept == ""
    world.serve()
    assert r1.again().outcome == "HELD"


def test_nor_does_one_with_a_better_place_keep_it_from_its_own(world: World, r1: Member, r2: Member) -> None:
    r2.hold("a")
    r1.ask("a")
    backup = world.scripts.backup()
    r2.yield_()
    world.serve()
    world.new_epoch(backup)
    r2.renew(done=1)
    assert r2.ask("a", priority=10).outcome == "QUEUED"
    world.settle()
    assert world.queue("a") == [r2.id, r1.id]
    assert world.slice("a").kept == r1.id
    assert r2.again().outcome == "QUEUED"
    assert r1.again().outcome == "SWITCHING"
    assert world.queue("a") == [r2.id]


def test_nothing_stays_kept_in_the_next_epoch(world: World, r1: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("a")
    world.new_epoch(backup)
    world.settle()
    assert world.slice("a").kept
    world.new_epoch()
    world.beat()
    assert world.slice("a").kept == ""
    assert world.slice("a").settling
    assert r1.beats()["state"] == "held"


def test_another_lane_or_turn_does_not_give_it_up(world: World, r1: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("p")
    r1.yield_()
    r1.hold("a")
    world.new_epoch(backup)
    world.settle()
    side = world.member("r1", lane="side")
    side.ask("b")
    r1.renew(done=1)
    assert world.slice("a").kept == r1.id
    assert r1.beats()["state"] == "held"


def test_nodes_that_disagree_keep_nothing(world: World, n1: Agent, r1: Member, r2: Member) -> None:
    backup = world.scripts.backup()
    r1.ask("b")
    n1.serve()
    world.new_epoch(backup)
    world.settle()
    assert world.slice("b").kept == ""
    assert world.slice("b").fence == n1.shown["b"].top
    r2.hold("b")
    assert r2.fences["b"] > n1.shown["b"].top - 1


@pytest.mark.parametrize("other", [{"run": "r2"}, {"lane": "side"}, {"k": 2}, {"run": "", "fence": 0}])
def test_nodes_must_agree_in_everything(world: World, r1: Member, other: dict[str, object]) -> None:
    backup = world.scripts.backup()
    r1.hold("b")
    for name, value in other.items():
        setattr(world.agent("n2").shown["b"], name, value)
    world.new_epoch(backup)
    world.settle()
    assert (world.slice("b").kept, world.slice("b").fence) == ("", r1.fences["b"])


def test_a_kept_slice_of_two_waits_for_both(world: World, n1: Agent, r1: Member) -> None:
    """A turn on two slices, both kept: its renew claims both at once."""
    backup = world.scripts.backup()
    r1.hold("a", "b")
    world.new_epoch(backup)
    world.settle()
    assert world.slice("a").kept == world.slice("b").kept == r1.id
    assert r1.beats()["state"] == "held"
    assert {world.slice(name).state for name in "ab"} == {"held"}


def test_a_claim_comes_too_late_when_another_has_it(world: World, r1: Member, r2: Member) -> None:
    backup = world.scripts.backup()
    r1.hold("a")
    world.new_epoch(backup)
    world.settle()
    part = r1.part()
    r1.yield_()
    r2.hold("a")
    assert r1.renew(part).parts[0]["state"] == "LOST"
    assert r2.beats()["state"] == "held"
