"""Turns through the client, on slices without agents."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from concurrent.futures import as_completed
from typing import Any

import pytest

import slicelock
from slicelock import errors
from slicelock.errors import LeaseLost, TurnError
from tests.support.sides import LoopSide, Side
from tests.support.wait import wait_until


class TestOneRun:
    def test_holds_and_yields(self, side: Side) -> None:
        turn = side.acquire("a", phase="train")
        [view] = side.requests()
        assert (view.run, view.job, view.phase, view.id) == ("r1", "job-r1", "train", turn.id)
        assert turn.slices == ("a",)
        assert turn.fences == {"a": turn.fence}
        assert turn.fence > 0
        assert not turn.moved
        assert not turn.lost.is_set()
        turn.check()
        assert side.give(turn) == 0
        assert side.requests() == []
        assert turn.slices == ()

    def test_fences_rise(self, side: Side) -> None:
        fences: list[int] = []
        for _ in range(5):
            turn = side.acquire("a")
            fences.append(turn.fence)
            side.give(turn)
        assert fences == sorted(set(fences))

    def test_a_block_yields_on_exit(self, side: Side) -> None:
        assert side.block(lambda turn: side.holder(), "a") == "r1"
        assert side.holder() == ""

    def test_a_block_yields_when_its_body_raises(self, side: Side) -> None:
        def fail(turn: Any) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            side.block(fail, "a")
        assert side.holder() == ""

    def test_a_block_whose_turn_was_yielded_early_does_nothing_more(self, side: Side) -> None:
        side.block(side.give, "a")
        assert side.requests() == []

    def test_some_slices_can_be_given_back_early(self, side: Side) -> None:
        turn = side.acquire("a", "b")
        assert turn.slices == ("a", "b")
        side.give(turn, "a")
        assert (side.holder("a"), side.holder("b")) == ("", "r1")
        assert turn.slices == ("b",)
        other = side.acquire("a", run="r2")
        side.give(turn, "b")
        assert side.holder("b") == ""
        side.give(other)

    def test_a_yield_without_a_turn_is_an_error(self, side: Side) -> None:
        turn = side.acquire("a")
        with pytest.raises(TurnError, match="no slice b"):
            side.give(turn, "b")
        side.give(turn)
        with pytest.raises(TurnError, match="no turn on a"):
            side.give(turn)
        with pytest.raises(TurnError, match="was yielded"):
            turn.check()

    def test_a_lane_that_holds_is_refused(self, side: Side) -> None:
        turn = side.acquire("a")
        with pytest.raises(errors.Holding, match="Lane main of run r1 holds a turn on a"):
            side.acquire("b")
        turn.check()
        side.give(turn)

    def test_a_lane_that_waits_is_refused_and_goes_on_waiting(self, side: Side) -> None:
        other = side.acquire("a", run="r2")
        waiting = side.ask("a")
        wait_until(lambda: len(side.requests()) == 2)
        with pytest.raises(errors.Holding, match="already waiting"):
            side.acquire("b")
        side.give(other)
        side.give(waiting.result(5))

    def test_lanes_take_turns_of_their_own(self, side: Side) -> None:
        first, second = side.acquire("a"), side.acquire("b", lane="rollout")
        assert (side.holder("a"), side.holder("b")) == ("r1", "r1")
        side.give(first)
        side.give(second)

    def test_a_second_process_object_of_the_same_run_goes_on_counting(self, side: Side) -> None:
        side.give(side.acquire("a"))
        slicelock.testing.close_all()
        turn = side.acquire("a")
        assert turn.id == "r1/main/2"
        side.give(turn)


class TestTwoRuns:
    def test_take_turns(self, side: Side) -> None:
        first = side.acquire("a", run="r1")
        waiting = side.ask("a", run="r2")
        wait_until(lambda: side.slice().queued == 1)
        assert side.give(first) == 1
        second = waiting.result(5)
        assert second.fence > first.fence
        assert side.holder() == "r2"
        assert second.waited_s > 0
        side.give(second)

    def test_a_holder_learns_that_its_slice_is_wanted(self, side: Side) -> None:
        turn = side.acquire("a", run="r1")
        assert not turn.wanted
        waiting = side.ask("a", run="r2")
        wait_until(lambda: turn.wanted)
        side.give(turn)
        second = waiting.result(5)
        assert not second.wanted
        side.give(second)

    def test_ask_for_all_or_none(self, side: Side) -> None:
        first = side.acquire("a", run="r1")
        both = side.ask("a", "b", run="r2")
        wait_until(lambda: side.slice("b").queued == 1)
        assert side.holder("b") == ""
        side.give(first)
        side.give(both.result(5))

    def test_a_turn_is_handed_over_by_a_message(self, side: Side) -> None:
        """Well before the next poll."""
        slow: dict[str, Any] = {"poll": 10.0, "lease": 60.0, "wait_lease": 30.0}
        turn = side.acquire("a", run="r1")
        waiting = side.ask("a", run="r2", facts=slow)
        wait_until(lambda: side.slice().queued == 1)
        begun = time.monotonic()
        side.give(turn)
        side.give(waiting.result(5))
        assert time.monotonic() - begun < 2.0

    def test_a_request_with_priority_goes_first(self, side: Side) -> None:
        turn = side.acquire("a", run="r1")
        later = side.ask("a", run="r2")
        wait_until(lambda: side.slice().queued == 1)
        sooner = side.ask("a", run="r3", priority=5)
        wait_until(lambda: side.slice().queued == 2)
        side.give(turn)
        side.give(sooner.result(5))
        side.give(later.result(5))

    def test_without_waiting_a_held_slice_is_busy(self, side: Side) -> None:
        turn = side.acquire("a", run="r1")
        with pytest.raises(errors.Busy, match="held by job-r1"):
            side.acquire("a", run="r2", wait=False)
        assert [view.run for view in side.requests()] == ["r1"]
        side.give(turn)
        side.give(side.acquire("a", run="r2", wait=False))

    def test_a_timeout_leaves_nothing_behind(self, side: Side) -> None:
        turn = side.acquire("a", run="r1")
        with pytest.raises(errors.AcquireTimeout, match="held by job-r1"):
            side.acquire("a", run="r2", timeout=0.3)
        assert [view.run for view in side.requests()] == ["r1"]
        side.give(turn)
        side.give(side.acquire("a", run="r2"))

    def test_a_second_run_of_the_same_job_is_another_party(
        self, side: Side, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = side.acquire("a", run="r1", facts={"job": "twin"})
        with caplog.at_level(logging.WARNING, "slicelock"):
            waiting = [side.ask("a", run="r2", lane=lane, facts={"job": "twin"}) for lane in "xy"]
            wait_until(lambda: side.slice().queued == 2)
        assert caplog.text.count("has another run, r1; r2 is a party of its own") == 1
        side.give(first)
        for turn in as_completed(waiting, 5):
            side.give(turn.result())

    def test_a_turn_object_that_is_dropped_is_yielded(
        self, side: Side, caplog: pytest.LogCaptureFixture
    ) -> None:
        side.acquire("a", run="r1")
        gc.collect()
        wait_until(lambda: side.holder() == "")
        assert "dropped without a yield" in caplog.text

    def test_closing_yields_what_is_held_and_cancels_what_waits(self, side: Side) -> None:
        turn = side.acquire("a", run="r1")
        waiting = side.ask("a", run="r2")
        wait_until(lambda: side.slice().queued == 1)
        side.party("r2").close()
        side.party("r1").close()
        assert side.requests() == []
        with pytest.raises(errors.SlicelockError):
            waiting.result(5)
        del turn


class TestMembers:
    def test_meet_in_one_turn(self, side: Side) -> None:
        first = side.ask("a", facts={"members": "2", "member": "0"})
        wait_until(lambda: [view.joined for view in side.requests()] == [1])
        second = side.ask("a", facts={"members": "2", "member": "1"})
        turns = first.result(5), second.result(5)
        assert turns[0].fences == turns[1].fences
        side.give(turns[0])
        assert side.holder() == "r1"
        side.give(turns[1])
        assert side.holder() == ""

    def test_that_ask_for_different_slices_are_both_told(self, side: Side) -> None:
        first = side.ask("a", facts={"members": "2", "member": "0"})
        wait_until(lambda: [view.joined for view in side.requests()] == [1])
        with pytest.raises(errors.Mismatch, match="another member asked for a"):
            side.acquire("a", "b", facts={"members": "2", "member": "1"})
        with pytest.raises(errors.Cancelled, match="Mismatch in member 1"):
            first.result(5)
        assert side.requests() == []

    def test_a_timeout_of_one_ends_it_for_all(self, side: Side) -> None:
        slow = side.ask("a", facts={"members": "3", "member": "0"})
        wait_until(lambda: [view.joined for view in side.requests()] == [1])
        with pytest.raises(errors.AcquireTimeout, match="missing of 3 members: 2"):
            side.acquire("a", facts={"members": "3", "member": "1"}, timeout=0.2)
        with pytest.raises(errors.Cancelled):
            slow.result(5)
        assert side.requests() == []


class TestLoss:
    def test_is_told_by_message(self, side: Side) -> None:
        told: list[Any] = []
        turn = side.acquire("a", on_lost=told.append)
        side.revoke(turn, "maintenance")
        wait_until(turn.lost.is_set)
        wait_until(lambda: told == [turn])
        with pytest.raises(errors.Revoked, match="maintenance"):
            turn.check()
        with pytest.raises(errors.Revoked):
            side.give(turn)
        side.give(side.acquire("a"))

    def test_is_raised_on_leaving_the_block(self, side: Side) -> None:
        def lose(turn: Any) -> None:
            side.revoke(turn)
            wait_until(turn.lost.is_set)

        with pytest.raises(errors.Revoked):
            side.block(lose, "a")

    def test_does_not_hide_what_the_body_raised(self, side: Side) -> None:
        def lose(turn: Any) -> None:
            side.revoke(turn)
            wait_until(turn.lost.is_set)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            side.block(lose, "a")
        assert "revoked" in caught.value.__notes__[0]

    def test_raised_by_check_is_raised_once(self, side: Side) -> None:
        def lose(turn: Any) -> None:
            side.revoke(turn)
            wait_until(turn.lost.is_set)
            turn.check()

        with pytest.raises(errors.Revoked) as caught:
            side.block(lose, "a")
        assert not hasattr(caught.value, "__notes__")

    def test_that_only_the_yield_learns_of_adds_a_note_too(self, side: Side) -> None:
        def fail(turn: Any) -> None:
            side.party().companion.stop()
            side.revoke(turn)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            side.block(fail, "a")
        [note] = caught.value.__notes__
        assert "revoked" in note


class TestAway:
    def test_gives_the_turn_up_and_takes_the_next(self, side: Side) -> None:
        def body(turn: Any) -> None:
            fence = turn.fence
            with _away(side):
                assert side.holder() == ""
                assert turn.is_away
                with pytest.raises(TurnError):
                    turn.check()
            assert turn.fence > fence
            assert side.holder() == "r1"
            turn.check()

        _in_turn(side, body)
        assert side.holder() == ""

    def test_raises_what_the_body_raised_once_the_turn_is_back(self, side: Side) -> None:
        def body(turn: Any) -> None:
            with pytest.raises(ZeroDivisionError), _away(side):
                raise ZeroDivisionError
            assert side.holder() == "r1"

        _in_turn(side, body)

    def test_that_cannot_come_back_is_raised_and_the_outer_block_does_nothing(self, side: Side) -> None:
        others: list[Any] = []

        def body(turn: Any) -> None:
            with _away(side, timeout=0.2):
                others.append(side.acquire("a", run="r2"))

        with pytest.raises(errors.AcquireTimeout):
            _in_turn(side, body)
        assert side.holder() == "r2"
        side.give(others[0])

    def test_asks_only_for_what_was_left(self, side: Side) -> None:
        def body(turn: Any) -> None:
            side.give(turn, "a")
            with _away(side):
                assert side.requests() == []
            assert (side.holder("a"), side.holder("b")) == ("", "r1")

        _in_turn(side, body, "a", "b")


def _in_turn(side: Side, body: Any, *names: str) -> None:
    """Run `body(turn)` inside a turn's block, where `current_turn` is known."""
    if not isinstance(side, LoopSide):
        side.block(body, *names)
        return

    async def inside() -> None:
        slices = slicelock.AsyncSlice(*names or ("a",), settings=side.settings())
        async with slices.turn() as turn:
            await asyncio.to_thread(body, turn)

    side.submit(inside()).result(10)


class _away:
    """`away` of either kind, inside plain test code that runs on a thread of the loop's."""

    def __init__(self, side: Side, **options: Any) -> None:
        self._side, self._away = side, slicelock.away(**options)

    def __enter__(self) -> None:
        if isinstance(self._side, LoopSide):
            self._turn = slicelock.current_turn()
            assert isinstance(self._turn, slicelock.AsyncTurn)
            self._side.submit(self._turn.leave("reward")).result(10)
        else:
            self._away.__enter__()

    def __exit__(self, *failure: Any) -> None:
        if isinstance(self._side, LoopSide):
            assert isinstance(self._turn, slicelock.AsyncTurn)
            self._side.submit(self._turn.come_back(self._away._timeout)).result(10)
        else:
            self._away.__exit__(*failure)


def test_threads_of_one_process_do_not_share_a_turn_by_accident(side: Side) -> None:
    """Eight at once in one lane: one begins, the others are refused, and nothing is left."""
    outcomes = [side.ask("a") for _ in range(8)]
    held, refused = [], []
    for outcome in outcomes:
        try:
            held.append(outcome.result(10))
        except errors.Holding as error:
            refused.append(error)
    assert len(held) >= 1
    assert len(held) + len(refused) == 8
    for turn in held:
        try:
            side.give(turn)
        except (TurnError, LeaseLost):
            pytest.fail("a turn that began could not be yielded")
    assert side.requests() == []


def test_companion_threads_are_one_for_each_party(side: Side) -> None:
    for _ in range(3):
        side.give(side.acquire("a"))
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("slicelock-companion") == 1
