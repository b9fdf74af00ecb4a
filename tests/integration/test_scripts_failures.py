"""Switches that fail, nodes that fall silent, slices that are blocked and heal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.world import LEASE_MS, SILENT_MS, Agent, Ear, Member, World, is_wanted

REASON = "r1 does not let go of 3 GiB"


pytestmark = pytest.mark.usefixtures("slices_of_nodes")


@pytest.fixture
def loaded(world: World) -> Member:
    """A run whose state is on n1's devices of `a`, without a turn."""
    made = world.member("r1")
    made.register("a")
    made.hold("a")
    made.yield_()
    return made


def fail(agent: Agent, name: str, what: str, **facts: Any) -> str:
    """Report that the present switch of a slice failed."""
    fence = int(agent.wanted()[name]["fence"])
    given = {"what": what, "reason": REASON, "run": "r1" if what == "evict" else ""}
    return agent.report(name, fence, "FAILED", **(given | facts))


def keep(world: World, ms: int, *members: Member) -> None:
    """Let time pass; these members are heard of, the agents beat."""
    while ms > 0:
        step = min(ms, 4_000)
        world.advance(step)
        for member in members:
            member.beats()
        ms -= step


# ---------------------------------------------------------------- eviction fails


def test_a_failed_eviction_blocks_the_slice_and_puts_the_request_back(
    world: World, n1: Agent, loaded: Member
) -> None:
    r2, r3 = world.member("r2"), world.member("r3")
    r2.ask("a")
    r3.ask("a")
    assert fail(n1, "a", "evict") == "OK"
    view = world.slice("a")
    assert view.state == "free"
    blocked = view.blocked["n1"]
    assert (blocked["kind"], blocked["reason"], blocked["run"]) == ("evict", REASON, "r1")
    assert world.queue("a") == [r2.id, r3.id]
    reply = r2.again()
    assert (reply.outcome, reply.reason) == ("QUEUED", REASON)
    assert world.request(r2.id)["reason"] == REASON
    assert not is_wanted(n1.wanted()["a"])
    [event] = world.events("blocked")
    assert (event["slice"], event["node"], event["reason"]) == ("a", "n1", REASON)


def test_the_loaded_run_itself_goes_first(world: World, n1: Agent, loaded: Member) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    fail(n1, "a", "evict")
    assert loaded.ask("a").outcome == "SWITCHING"
    n1.serve()
    assert loaded.again().outcome == "HELD"
    assert r2.again().outcome == "QUEUED"


def test_the_loaded_run_that_waits_already_goes_first(world: World, n1: Agent, loaded: Member) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    assert loaded.ask("a").outcome == "QUEUED"
    fail(n1, "a", "evict")
    assert n1.wanted()["a"]["run"] == "r1"
    n1.serve()
    assert loaded.again().outcome == "HELD"


def test_it_is_tried_again_with_backoff(world: World, n1: Agent, loaded: Member) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    for wait_ms in (2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000):
        fail(n1, "a", "evict")
        keep(world, wait_ms, r2)
        assert r2.again().outcome == "QUEUED", f"tried again within {wait_ms} ms"
        world.advance(1)
        assert r2.again().outcome == "SWITCHING", f"not tried again after {wait_ms} ms"
        assert is_wanted(n1.wanted()["a"])
    n1.serve()
    assert r2.again().outcome == "HELD"


def test_a_success_forgets_the_backoff(world: World, n1: Agent, loaded: Member) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    for wait_ms in (2_001, 4_001):
        fail(n1, "a", "evict")
        keep(world, wait_ms, r2)
    n1.serve()
    r2.again()
    r2.yield_()
    r3 = world.member("r3")
    r3.ask("a")
    fail(n1, "a", "evict", run="r2")
    keep(world, 2_001, r3)
    assert r3.again().outcome == "SWITCHING"


def test_it_heals_when_the_run_is_gone(world: World, n1: Agent, loaded: Member, ear: Ear) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    fail(n1, "a", "evict")
    ear.heard()
    n1.shown["a"].run, n1.shown["a"].fence = "", 0
    n1.beat()
    assert not world.slice("a").blocked
    assert ("node:n1", "grant a") in ear.heard()
    assert r2.again().outcome == "SWITCHING"
    assert world.events("healed")[-1]["slice"] == "a"


def test_a_blocked_slice_does_not_hold_up_others(world: World, n1: Agent, n2: Agent, loaded: Member) -> None:
    """Passed over: a request ahead that cannot start because another of its slices is blocked."""
    r2, r3 = world.member("r2"), world.member("r3")
    r2.ask("a", "c")
    fail(n1, "a", "evict")
    assert world.slice("c").state == "free"
    assert r3.ask("c").outcome == "SWITCHING"


def test_when_it_heals_the_one_passed_over_has_its_old_place(world: World, n1: Agent, loaded: Member) -> None:
    r2, r3, r4 = world.member("r2"), world.member("r3"), world.member("r4")
    r2.ask("a", "c")
    fail(n1, "a", "evict")
    r3.hold("c")
    r4.ask("c")
    n1.shown["a"].run = ""
    n1.beat()
    r3.yield_()
    assert r2.again().outcome == "SWITCHING"
    assert r4.again().outcome == "QUEUED"


def test_a_failed_eviction_of_one_slice_frees_the_others_of_the_switch(
    world: World, n1: Agent, n2: Agent, loaded: Member, ear: Ear
) -> None:
    r2 = world.member("r2")
    r2.ask("a", "c")
    n2.serve()
    ear.heard()
    fail(n1, "a", "evict")
    assert world.slice("c").state == "free"
    assert not world.client.exists(world.keys.ready("c"))
    assert ("node:n2", "revoke c") in ear.heard()
    assert ("run:r2", "look r2/main/1") in ear.heard() or r2.again().outcome == "QUEUED"


def test_a_failed_eviction_told_twice_counts_once(world: World, n1: Agent, loaded: Member) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    fence = int(n1.wanted()["a"]["fence"])
    facts = {"what": "evict", "reason": REASON, "run": "r1"}
    assert n1.report("a", fence, "FAILED", **facts) == "OK"
    before = world.dump()
    assert n1.report("a", fence, "FAILED", **facts) == "STALE"
    assert world.dump() == before


def test_the_requeued_keep_their_waiting_lease(world: World, n1: Agent, loaded: Member) -> None:
    r2 = world.member("r2")
    r2.ask("a")
    fail(n1, "a", "evict")
    keep(world, 2 * LEASE_MS, r2)
    assert r2.state in ("queued", "switching")


def test_two_nodes_may_block_one_slice(world: World, n1: Agent, n2: Agent) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.hold("b")
    r1.yield_()
    r2.ask("b")
    fail(n1, "b", "evict")
    n2.alive = False
    keep(world, SILENT_MS + 1, r2)
    assert set(world.slice("b").blocked) >= {"n2"}
    n1.shown["b"].run = n2.shown["b"].run = ""
    n1.beat()
    assert set(world.slice("b").blocked) == {"n2"}
    assert r2.again().outcome == "QUEUED" or world.slice("b").state == "switching"
    n2.alive = True
    n2.beat()
    assert not world.slice("b").blocked
    assert r2.again().outcome == "SWITCHING"


# ---------------------------------------------------------------- restore fails


def test_a_failed_restore_fails_the_request_and_loses_the_run_there(world: World, n1: Agent) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    r2.ask("a")
    assert fail(n1, "a", "restore", reason="image is gone") == "OK"
    part = r1.beats()
    assert (part["state"], part["outcome"], part["reason"]) == ("LOST", "failed", "image is gone")
    assert r1.again().outcome == "RUN_LOST"
    assert r2.again().outcome == "SWITCHING", "the next one starts"
    reply = r1.ask("a")
    assert (reply.outcome, reply.slice, reply.reason) == ("RUN_LOST", "a", "image is gone")
    assert r1.ask("b", "a").outcome == "RUN_LOST"
    assert r1.ask("c").outcome == "SWITCHING", "elsewhere the run goes on"
    assert world.member("r1b").ask("b").outcome == "SWITCHING", "another run of the job is another party"


def test_a_lost_run_that_asks_leaves_nothing_in_the_queue(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    fail(n1, "a", "restore")
    before = world.dump()
    r1.ask("a")
    assert world.dump() == before
    assert world.queue("a") == []


def test_refused_fails_the_request_but_not_the_run(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    assert fail(n1, "a", "refused", reason="r1 has two CUDA processes") == "OK"
    reply = r1.again()
    assert (reply.ended, reply.reason) == ("failed", "r1 has two CUDA processes")
    assert r1.ask("a").outcome == "SWITCHING"


# ---------------------------------------------------------------- silent nodes


def test_a_silent_node_blocks_its_slices_until_it_is_heard(world: World, n1: Agent, n2: Agent) -> None:
    n2.alive = False
    world.advance(SILENT_MS)
    assert not world.slice("c").blocked
    world.advance(1)
    assert {name: set(world.slice(name).blocked) for name in "abc"} == {"a": set(), "b": {"n2"}, "c": {"n2"}}
    assert world.slice("c").blocked["n2"]["kind"] == "silent"
    assert "n2" in world.slice("c").blocked["n2"]["reason"]
    r1, r2 = world.member("r1"), world.member("r2")
    reply = r1.ask("b")
    assert reply.outcome == "QUEUED"
    assert "n2" in reply.reason
    assert r2.ask("a").outcome == "SWITCHING"
    n2.beat()
    assert not world.slice("b").blocked
    assert r1.again().outcome == "SWITCHING"
    assert [event["node"] for event in world.events("silent")] == ["n2"]
    assert [node.silent for node in world.picture().nodes] == [False, False]


def test_a_turn_goes_on_while_its_node_is_silent(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.hold("a")
    n1.alive = False
    keep(world, 3 * SILENT_MS, r1)
    assert r1.state == "held"
    assert "a" in [one.name for one in world.picture().slices if one.blocked]
    n1.alive = True
    n1.beat()
    assert r1.state == "held"


def test_a_single_slice_switch_waits_for_its_silent_node(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    n1.alive = False
    keep(world, 3 * SILENT_MS, r1)
    reply = r1.again()
    assert reply.outcome == "SWITCHING"
    assert "n1" in reply.reason
    assert world.slice("a").holder.reason == reply.reason  # type: ignore[union-attr]
    n1.alive = True
    n1.serve()
    assert r1.again().outcome == "HELD"


def test_a_switch_of_several_slices_frees_the_others_after_10_s_blocked(
    world: World, n1: Agent, n2: Agent, ear: Ear
) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a", "c")
    r2.ask("a")
    n1.serve()
    n2.alive = False
    keep(world, SILENT_MS + 1, r1, r2)
    assert world.slice("c").blocked
    ear.heard()
    keep(world, 9_900, r1, r2)
    assert (r1.state, r2.state) == ("switching", "queued")
    keep(world, 4_000, r1, r2)
    assert (r1.state, r2.state) == ("queued", "switching")
    assert set(world.slice("c").blocked) == {"n2"}
    n1.serve()
    assert r2.again().outcome == "HELD"
    n2.alive = True
    n2.beat()
    assert r1.again().outcome == "QUEUED"
    r2.yield_()
    assert r1.again().outcome == "SWITCHING"


def test_a_switch_that_was_blocked_for_less_goes_on(world: World, n1: Agent, n2: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a", "c")
    n1.serve()
    n2.alive = False
    keep(world, SILENT_MS + 5_000, r1)
    assert world.slice("c").blocked
    n2.alive = True
    n2.beat()
    keep(world, 8_000, r1)
    assert r1.state == "switching"
    n2.serve()
    assert r1.again().outcome == "HELD"


def test_a_node_that_never_beat_is_silent_too(world: World) -> None:
    world.declare("d", "n9")
    world.agents.pop("n9")
    r1 = world.member("r1")
    r1.ask("d")
    keep(world, SILENT_MS + 1, r1)
    assert set(world.slice("d").blocked) == {"n9"}
    assert "n9" in r1.again().reason


# ---------------------------------------------------------------- fences that cannot be


@pytest.mark.parametrize("top", [0.5, -1, 2**60, "9", None])
def test_a_fence_that_cannot_be_blocks_its_node_by_name(world: World, n1: Agent, top: object) -> None:
    n1.shown["a"].top = top  # type: ignore[assignment]
    n1.beat()
    assert set(world.slice("a").blocked) == {"n1"}
    assert world.slice("a").blocked["n1"]["kind"] == "fence"
    assert "n1" in world.slice("a").blocked["n1"]["reason"]
    assert not world.slice("b").blocked
    r1 = world.member("r1")
    assert "fence" in r1.ask("a").reason
    assert world.slice("a").fence == 0
    n1.shown["a"].top = 0
    n1.beat()
    assert not world.slice("a").blocked
    assert r1.again().outcome == "SWITCHING"


def test_a_node_that_has_admitted_more_raises_the_fence(world: World, n1: Agent) -> None:
    """Its journal is older than what this Redis knows: the next grant is above it."""
    r1 = world.member("r1")
    r1.hold("a")
    r1.yield_()
    top = r1.fences["a"] + 1_000_000
    n1.shown["a"].top = top
    n1.beat()
    assert world.slice("a").fence == top
    r1.hold("a")
    assert r1.fences["a"] == top + 1


def test_a_switch_below_what_its_node_has_admitted_starts_again_above_it(world: World, n1: Agent) -> None:
    r1 = world.member("r1")
    r1.ask("a")
    first = int(n1.wanted()["a"]["fence"])
    n1.shown["a"].top = first + 77
    n1.beat()
    again = n1.wanted()["a"]
    assert (again["run"], int(again["fence"])) == ("r1", first + 78)
    assert n1.report("a", first) == "STALE"
    n1.serve()
    assert r1.again().fences == {"a": first + 78}
