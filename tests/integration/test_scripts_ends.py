"""Turns on slices without agents: giving back, giving up, and what others hear of it."""

from __future__ import annotations

import pytest

from slicelock import wire
from tests.support.scripts import START_MS
from tests.support.world import Ear, World, dump


@pytest.fixture(autouse=True)
def slices(world: World) -> None:
    world.declare("a")
    world.declare("b")


# ---------------------------------------------------------------- giving back


def test_yield_says_how_many_wait(world: World) -> None:
    r0 = world.member("r0")
    r0.hold("a")
    for i in range(3):
        world.member(f"w{i}").ask("a")
    assert r0.yield_().waiters == 3


def test_a_repeated_yield_changes_nothing(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    r1.yield_()
    before = world.dump()
    assert r1.yield_().outcome == "ALREADY"
    assert world.dump() == before


def test_yield_of_a_turn_never_seen_is_already(world: World) -> None:
    assert world.run(wire.Yield("ghost", "main", 7, "0")).outcome == "ALREADY"
    assert world.dump() == {"slices": {b"a", b"b"}} | {
        name: value for name, value in world.dump().items() if name.startswith("slice:")
    }


def test_late_yield_after_expiry_is_lost_and_disturbs_nobody(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    for _ in range(17):
        world.scripts.advance(4_000)
        r2.ask("a") if r2.k == 0 else r2.again()
    assert r2.again().outcome == "HELD"
    before = world.dump()
    reply = r1.yield_()
    assert (reply.outcome, reply.ended) == ("LOST", "expired")
    assert world.dump() == before


def test_slices_given_back_early_go_to_the_next(world: World) -> None:
    r1, r2, r3 = world.member("r1"), world.member("r2"), world.member("r3")
    r1.hold("a", "b")
    r2.ask("a")
    r3.ask("b")
    reply = r1.yield_("a")
    assert (reply.outcome, reply.waiters) == ("YIELDED", 1)
    assert r2.again().outcome == "HELD"
    assert r3.again().outcome == "QUEUED"
    assert set(r1.again().fences) == {"b"}
    assert [(event["run"], event["slice"]) for event in world.events("given_back")] == [("r1", "a")]
    assert r1.yield_("a").outcome == "ALREADY"
    assert r1.yield_().outcome == "YIELDED"
    assert r3.again().outcome == "HELD"
    assert r2.beats()["state"] == "held"
    assert world.state(r1.id) == "yielded"


def test_a_heartbeat_that_a_partial_yield_overtakes_loses_nothing(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a", "b")
    late = r1.renew_command({"parts": [r1.part()]})
    r1.yield_("a")
    assert world.run(late).parts[0]["state"] == "held"
    assert r1.beats()["state"] == "held"
    assert (world.slice("a").state, world.slice("b").state) == ("free", "held")


def test_giving_back_the_last_slice_ends_the_turn(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a", "b")
    r1.yield_("a")
    assert r1.yield_("b").outcome == "YIELDED"
    assert r1.state == "yielded"
    assert world.slice("a").state == world.slice("b").state == "free"


def test_asking_for_the_next_turn_tells_a_forgotten_yield(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    assert r1.ask("a").outcome == "QUEUED"
    assert r2.again().outcome == "HELD"
    assert world.state("r1/main/1") == "yielded"


def test_asking_behind_the_newest_turn_is_ended(world: World) -> None:
    r1 = world.member("r1")
    for _ in range(3):
        r1.hold("a")
        r1.yield_()
    reply = r1.again(k=2)
    assert (reply.outcome, reply.ended, reply.newest) == ("ENDED", "yielded", 3)


def test_an_ended_turn_is_remembered_for_late_repetitions(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    assert 600_000 <= world.client.pttl(world.keys.request(r1.id)) <= 1_800_000  # type: ignore[operator]
    reply = r1.again()
    assert (reply.outcome, reply.ended, reply.newest) == ("ENDED", "yielded", 1)
    world.client.delete(world.keys.request(r1.id))
    reply = r1.again()
    assert (reply.outcome, reply.newest) == ("ENDED", 1)


# ---------------------------------------------------------------- giving up


def test_cancelling_a_waiter_leaves_no_trace_in_the_queue(world: World) -> None:
    r1, r2, r3 = world.member("r1"), world.member("r2"), world.member("r3")
    r1.hold("a")
    r2.ask("a", "b")
    r3.ask("a")
    assert r2.cancel(why="timeout").outcome == "CANCELLED"
    assert world.queue("a") == [r3.id]
    assert world.queue("b") == []
    reply = r2.again()
    assert (reply.outcome, reply.ended, reply.reason) == ("ENDED", "cancelled", "timeout")


def test_a_repeated_cancel_changes_nothing(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    assert r1.cancel().outcome == "CANCELLED"
    before = world.dump()
    assert r1.cancel().outcome == "ALREADY"
    assert world.dump() == before


def test_cancelling_what_was_just_held_frees_it(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    r2.ask("a")
    assert r1.cancel().outcome == "CANCELLED"
    assert r2.again().outcome == "HELD"
    assert r1.again().ended == "cancelled"


def test_a_cancel_that_overtakes_its_request_stops_it(world: World) -> None:
    r1 = world.member("r1")
    assert r1.cancel(1).outcome == "CANCELLED"
    reply = r1.ask("a")
    assert (reply.outcome, reply.ended) == ("ENDED", "cancelled")
    assert world.slice("a").state == "free"
    assert r1.ask("a").outcome == "HELD"


def test_cancelling_an_old_turn_is_already(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    r1.hold("a")
    assert r1.cancel(1).outcome == "ALREADY"
    assert r1.beats()["state"] == "held"


def test_cancelling_a_turn_that_is_no_longer_remembered_is_already(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    world.client.delete(world.keys.request(r1.id))
    assert r1.cancel().outcome == "ALREADY"
    assert r1.state == ""


def test_busy_when_not_to_wait(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    reply = r2.ask("a", "b", no_wait=True)
    assert reply.outcome == "BUSY"
    assert "r1" in reply.reason
    assert world.queue("a") == world.queue("b") == []
    r1.yield_()
    late = r2.again(no_wait=True)
    assert (late.outcome, late.ended) == ("ENDED", "cancelled"), (
        "the lost reply's repetition must not hold by surprise"
    )
    assert r2.ask("a", no_wait=True).outcome == "HELD"


def test_busy_passes_nobody_who_waits(world: World) -> None:
    r1, both, hasty = world.member("r1"), world.member("r2"), world.member("r3")
    r1.hold("a")
    both.ask("a", "b")
    assert hasty.ask("b", no_wait=True).outcome == "BUSY"


# ---------------------------------------------------------------- what others hear


def test_the_next_holder_is_told_and_the_present_one_that_it_is_wanted(world: World, ear: Ear) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    assert ear.heard() == [], "the reply has said it"
    r2.ask("a")
    assert ear.heard() == [("run:r1", "wanted a")]
    r1.yield_()
    assert ear.heard() == [("run:r2", "held r2/main/1")]
    r2.cancel()
    assert ("run:r2", "lost r2/main/1") in ear.heard()


def test_renew_says_whether_the_turn_is_wanted(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    assert r1.beats()["wanted"] == "0"
    r2.ask("a")
    assert r1.beats()["wanted"] == "1"


def test_every_step_is_an_event(world: World) -> None:
    r1 = world.member("r1")
    r1.hold("a", phase="train")
    world.scripts.advance(1_000)
    r1.yield_()
    assert [event["type"] for event in world.events() if event["type"] != "declared"] == [
        "held",
        "ended",
    ]
    ended = world.events("ended")[-1]
    wanted = {"run": "r1", "job": "job-r1", "lane": "main", "k": "1", "phase": "train", "slices": "a"}
    assert wanted.items() <= ended.items()
    assert (ended["outcome"], ended["held_ms"], ended["t"]) == ("yielded", "1000", str(START_MS + 1_000))


def test_waiting_is_an_event_too(world: World) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("a")
    r2.ask("a")
    world.scripts.advance(700)
    r1.yield_()
    assert [event["run"] for event in world.events("queued")] == ["r2"]
    assert world.events("held")[-1]["waited_ms"] == "700"


def test_nothing_is_left_of_runs_that_are_gone(world: World) -> None:
    before = dump(world.scripts)
    r1, r2 = world.member("r1"), world.member("r2")
    r1.register("a")
    r1.hold("a")
    r2.ask("a")
    r1.cancel()
    r2.cancel()
    r1.register("a", gone=True)
    world.scripts.advance(700_000)
    left = world.dump().keys() - before.keys()
    assert {name for name in left if not name.startswith("request:")} == set()
