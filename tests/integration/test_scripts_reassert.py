"""A new life of Redis that remembers wrongly: who is right is found out from members and nodes."""

from __future__ import annotations

import itertools

import pytest

from tests.support.world import LEASE_MS, Agent, Member, World, is_wanted

PATIENCE_MS = 2_000

pytestmark = pytest.mark.usefixtures("slices")


# ---------------------------------------------------------------- what Redis remembers wrongly


def test_a_stored_turn_gives_way_to_the_later_one_that_renews(world: World, r1: Member, r2: Member) -> None:
    r1.hold("a")
    backup = world.scripts.backup()
    r1.yield_()
    r2.hold("a")
    world.new_epoch(backup)
    assert r2.beats()["state"] == "held"
    assert world.state("r1/main/1") == "superseded"
    assert r1.beats()["outcome"] == "superseded"
    world.settle()
    assert r2.again().fences == r2.fences


def test_a_stored_turn_that_its_nodes_do_not_show_is_superseded(world: World, r1: Member, r2: Member) -> None:
    r1.hold("a")
    backup = world.scripts.backup()
    r1.yield_()
    r2.hold("a")
    world.new_epoch(backup)
    world.settle()
    assert world.state("r1/main/1") == "superseded"
    assert world.slice("a").kept == r2.id
    assert r2.beats()["state"] == "held"


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_stored_turn_must_be_shown_by_all_of_its_nodes(world: World, r1: Member, node: str) -> None:
    r1.hold("b")
    shown = world.agent(node).shown["b"]
    shown.run, shown.fence = "", 0
    world.new_epoch()
    world.settle()
    assert r1.state == "superseded"


def test_a_forgotten_yield_is_told_again(world: World, r1: Member, r2: Member) -> None:
    r1.hold("a")
    backup = world.scripts.backup()
    r1.yield_()
    world.new_epoch(backup)
    r2.ask("a")
    r1.renew(done=1)
    assert world.state("r1/main/1") == "yielded"
    world.settle()
    assert r2.again().outcome == "SWITCHING"


def test_a_forgotten_end_of_a_holder_that_died_is_found_by_its_lease(
    world: World, r1: Member, r2: Member
) -> None:
    r1.register("a")
    r1.hold("a")
    backup = world.scripts.backup()
    world.agent("n1").exited(r1)
    world.new_epoch(backup)
    r2.ask("a", wait_ms=10 * LEASE_MS)
    world.settle()
    assert r1.state == "held"
    world.advance(LEASE_MS + 4_000)
    assert r2.again().outcome == "SWITCHING"


def test_a_stored_switch_is_reported_again(world: World, n1: Agent, r1: Member) -> None:
    r1.ask("a")
    backup = world.scripts.backup()
    n1.serve()
    assert r1.again().outcome == "HELD"
    world.new_epoch(backup)
    world.settle()
    assert is_wanted(n1.wanted()["a"])
    n1.serve()
    assert r1.again().fences == r1.fences


@pytest.mark.parametrize("in_time", [True, False])
def test_a_stored_switch_whose_holder_was_told_goes_on(
    world: World, n1: Agent, r1: Member, in_time: bool
) -> None:
    r1.ask("a")
    backup = world.scripts.backup()
    n1.serve()
    r1.again()
    world.new_epoch(backup)
    if in_time:
        assert r1.beats()["state"] == "held"
    world.settle()
    assert r1.beats()["state"] == "held", "its nodes show it"
    n1.serve()
    assert r1.beats()["state"] == "held"
    assert r1.again().fences == r1.fences


def test_a_half_done_switch_needs_every_ready_again(world: World, n1: Agent, r1: Member) -> None:
    r1.ask("b")
    n1.serve()
    world.new_epoch()
    world.settle()
    world.agent("n2").serve()
    assert r1.again().outcome == "SWITCHING"
    n1.serve()
    assert r1.again().outcome == "HELD"


def test_a_re_asserted_turn_supersedes_the_runs_earlier_ones(world: World, r1: Member) -> None:
    r1.hold("p")
    backup = world.scripts.backup()
    r1.yield_()
    r1.hold("a")
    world.new_epoch(backup)
    assert r1.beats()["state"] == "held"
    assert world.state("r1/main/1") in ("superseded", "yielded")
    assert world.slice("p").state == "free"


def test_what_is_overtaken_on_one_slice_keeps_the_others_until_it_says_more(
    world: World, r1: Member, r2: Member
) -> None:
    """Whether the stored turn had ended or had only given this slice back is for its own members to say."""
    r1.hold("a", "b")
    backup = world.scripts.backup()
    r1.yield_()
    r2.hold("a")
    world.new_epoch(backup)
    r2.beats()
    assert world.record(world.keys.slice("a"))["request"] == r2.id
    assert [(event["run"], event["slice"]) for event in world.events("given_back")] == [("r1", "a")]
    assert world.record(world.keys.slice("b"))["request"] == "r1/main/1"
    r1.renew(done=1)
    assert world.slice("b").state == "free"
    assert r2.beats()["state"] == "held"


@pytest.mark.parametrize("before_settling", [True, False])
def test_a_holder_overtaken_on_one_slice_is_lost_if_it_has_not_yielded_it(
    world: World, r1: Member, r2: Member, before_settling: bool
) -> None:
    r1.hold("a", "b")
    part = r1.part()
    backup = world.scripts.backup()
    r1.cancel()
    r2.hold("a")
    world.new_epoch(backup)
    if before_settling:
        r2.beats()
        r1.renew(part)
    world.settle()
    assert r2.beats()["state"] == "held"
    assert r1.renew(part).parts[0]["state"] == "LOST"
    assert world.slice("b").state == "free"


def test_a_waiting_request_that_redis_forgot_is_unknown(world: World, r1: Member, r2: Member) -> None:
    r1.hold("a")
    backup = world.scripts.backup()
    r2.ask("a")
    world.new_epoch(backup)
    assert r2.beats()["state"] == "UNKNOWN"
    assert r2.again(waited_ms=1_000).outcome == "QUEUED"


def test_an_older_turn_cannot_be_re_asserted_over_a_newer(world: World, r1: Member, r2: Member) -> None:
    """A paused holder wakes up after a failover: its fence is behind."""
    backup = world.scripts.backup()
    r1.hold("a")
    old = r1.part()
    r1.yield_()
    r2.hold("a")
    world.new_epoch(backup)
    assert r2.beats()["state"] == "held"
    assert r1.renew(old).parts[0]["state"] == "UNKNOWN"
    world.settle()
    assert r1.renew(old).parts[0]["state"] == "LOST"
    assert r2.beats()["state"] == "held"


def test_without_a_new_epoch_nothing_is_re_asserted(world: World, n1: Agent, r1: Member) -> None:
    r1.hold("a")
    part = r1.part()
    r1.cancel()
    assert r1.renew(part).parts[0]["state"] == "LOST"
    made_up = r1.part(k=9, fences={"a": r1.fences["a"] + 5})
    assert r1.renew(made_up).parts[0]["state"] == "LOST"
    assert world.slice("a").state == "free"
    assert world.state("r1/main/9") == ""


@pytest.mark.parametrize("order", list(itertools.permutations(("renew", "n1", "n2", "time"))))
def test_no_running_turn_is_lost_in_whatever_order_they_come(
    world: World, r1: Member, r2: Member, order: tuple[str, ...]
) -> None:
    """Invariant 6: with and without its grant, a failover ends no running turn."""
    backup = world.scripts.backup()
    r1.hold("a", "b")
    for data in (None, backup):
        world.new_epoch(data)
        for what in order:
            match what:
                case "renew":
                    assert r1.beats()["state"] == "held"
                case "time":
                    world.scripts.advance(PATIENCE_MS + 1)
                case _:
                    world.agent(what).beat()
        world.settle()
        assert r1.beats()["state"] == "held"
        assert r1.again().fences == r1.fences
