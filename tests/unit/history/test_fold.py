"""Events become turns, waits, switches and conditions."""

from __future__ import annotations

import json
import random

from slicelock.events import Event
from slicelock.history import UNKNOWN, History
from slicelock.history.sweep import Window
from tests.support.history import START_S, Story, s, spans


def two_jobs() -> Story:
    """a holds from 0 to 10; b asks at 4, is granted at 10, loaded at 12, and ends at 20."""
    story = Story()
    story.at(0).turn("a", 1, held=10, phase="train").events.pop()
    story.at(4).queued("b", 1, phase="train")
    story.at(10).ended("a", 1, held=10, phase="train").switching("b", 1, fence=5)
    step = {"step": "snapshot", "run": "a-1", "way": "sim", "bytes": 4, "seconds": 1.5}
    story.at(12).ready("b", 1, bytes=9, seconds=1.9, busy=40.5, steps=json.dumps([step]))
    story.held("b", 1, waited=8)
    return story.at(20).ended("b", 1, held=8)


def test_turns_waits_and_switches() -> None:
    history = two_jobs().history()
    seen = history.slices["s"]
    assert [(one.job, one.phase, one.outcome) for one in seen.turns] == [
        ("a", "train", "yielded"),
        ("b", "", "yielded"),
    ]
    assert spans(seen.turns) == [(0, 10), (12, 20)]
    assert [
        (s(one.asked_ms), s(one.queued_ms), s(one.granted_ms), s(one.ended_ms)) for one in history.waits
    ] == [
        (0, None, None, 0),
        (4, 4, 10, 12),
    ]
    [switch] = seen.switches
    assert (switch.job, switch.left, switch.fence, switch.outcome, switch.bytes) == ("b", "a", "5", "held", 9)
    assert spans([switch]) == [(10, 12)]
    done = switch.nodes["n1"]
    assert (done.busy, done.seconds, done.steps[0].step, done.steps[0].bytes) == (40.5, 1.9, "snapshot", 4)
    assert (s(history.begin_ms), s(history.now_ms)) == (0, 20)


def test_what_goes_on_has_no_end() -> None:
    story = two_jobs()
    story.events.pop()
    seen = story.history().slices["s"]
    assert seen.turn is not None and seen.turn.job == "b"
    assert seen.switch is None


def test_members_gather_before_they_queue() -> None:
    story = Story().at(9).queued("a", 1, gathering=5)
    story.at(11).held("a", 1, waited=7)
    [wait] = story.history().waits
    assert (s(wait.asked_ms), s(wait.queued_ms), s(wait.ended_ms)) == (4, 9, 11)


def test_a_wait_that_comes_to_nothing() -> None:
    story = Story().at(2).queued("a", 1).at(5).ended("a", 1, held=None, outcome="cancelled", waited_ms=3000)
    [wait] = story.history().waits
    assert (wait.outcome, s(wait.asked_ms), s(wait.ended_ms)) == ("cancelled", 2, 5)
    assert story.history().slices["s"].turns == []


def test_a_switch_that_is_put_back() -> None:
    story = Story().at(0).switching("a", 1).at(3).of("failed", "a", 1, slice="s", node="n1", reason="stuck")
    story.of("requeued", "a", 1, reason="stuck")
    story.at(9).switching("a", 1).at(10).held("a", 1, waited=10)
    history = story.history()
    assert [(one.outcome, s(one.ended_ms)) for one in history.slices["s"].switches] == [
        ("requeued", 3),
        ("held", 10),
    ]
    [wait] = history.waits
    assert (wait.requeued, s(wait.granted_ms), s(wait.asked_ms)) == (["stuck"], 9, 0)


def test_a_slice_without_agents_is_switched_with_the_others() -> None:
    story = Story("s t").at(0).switching("a", 1, "s", fence=7).at(2).ready("a", 1, "s").held("a", 1, waited=2)
    history = story.history()
    assert spans(history.slices["t"].switches) == spans(history.slices["s"].switches) == [(0, 2)]
    assert history.slices["s"].switches[0].fence == "7"


def test_slices_are_given_back_one_by_one() -> None:
    story = Story("s t").at(0).held("a", 1)
    story.at(3).of("given_back", "a", 1, slice="t")
    story.at(4).held("b", 1, slices="t").at(5).ended("b", 1, held=1, slices="t")
    story.at(9).ended("a", 1, held=9)
    history = story.history()
    assert spans(history.slices["t"].turns) == [(0, 3), (4, 5)]
    assert spans(history.slices["s"].turns) == [(0, 9)]


# ---------------------------------------------------------------- conditions


def test_conditions_begin_and_end() -> None:
    story = Story().at(0).tell("declared", slice="s", nodes="n1").at(2).tell("settled", slice="s")
    story.at(3).tell("blocked", slice="s", node="n1", kind="silent", reason="n1 is silent")
    story.at(4).tell("blocked", slice="s", node="*", kind="drain", reason="drained")
    story.at(5).tell("healed", slice="s", node="n1").at(6).tell("epoch", epoch=2)
    story.at(7).tell("settled", slice="s").tell("kept", slice="s", request="a-1/main/1")
    story.at(8).of("reasserted", "a", 1)
    seen = story.history().slices["s"]
    assert [(one.what, s(one.began_ms), s(one.ended_ms)) for one in seen.conditions] == [
        ("settling", 0, 2),
        ("blocked", 3, 5),
        ("draining", 4, None),
        ("settling", 6, 7),
        ("kept", 7, 8),
    ]
    assert seen.turn is not None
    assert [one.what for one in seen.present] == ["draining"]


def test_an_agentless_slice_does_not_settle_when_it_is_declared() -> None:
    assert Story().tell("declared", slice="s").history().slices["s"].conditions == []


def test_marks() -> None:
    story = Story().at(1).tell("silent", node="n1").tell("clock", step_ms=-7000).tell("gap", reason="trimmed")
    assert [(one.type, one.text) for one in story.history().marks] == [
        ("silent", "n1"),
        ("clock", "the clock stepped back by 7.0 s"),
        ("gap", "trimmed"),
    ]


# ---------------------------------------------------------------- beginnings in the middle, and gaps


def test_an_end_tells_how_long_it_was() -> None:
    story = two_jobs()
    seen = story.history(skip=len(story.events) - 1).slices["s"]
    assert spans(seen.turns) == [(12, 20)]


def test_every_beginning_in_the_middle_tells_the_same_end() -> None:
    story = two_jobs()
    for skip in range(1, len(story.events)):
        history = story.history(skip)
        last = history.slices["s"].turns[-1]
        assert (last.job, spans([last])) == ("b", [(12, 20)])
        waits = [one for one in history.waits if one.job == "b"]
        assert not waits or (s(waits[-1].asked_ms), s(waits[-1].ended_ms)) == (4, 12)


def test_an_unknown_beginning_is_not_put_into_anothers_turn() -> None:
    story = Story().at(5).turn("a", 1, held=3).at(10).ended("b", 1, held=8)
    assert spans(story.history().slices["s"].turns) == [(5, 8), (8, 10)]


def test_a_slice_given_back_before_the_stream_begins() -> None:
    story = Story("s t").at(5).held("b", 1, slices="t").at(8).ended("a", 1, held=8)
    history = story.history()
    assert [one.job for one in history.slices["t"].turns] == ["b"]
    assert spans(history.slices["t"].turns) == [(5, None)]


def test_who_is_followed_has_left() -> None:
    story = Story().at(0).held("a", 1).at(5).tell("gap", reason="lost").at(9).held("b", 1, waited=2)
    first, second = story.history().slices["s"].turns
    assert (first.outcome, s(first.ended_ms), second.ended_ms) == (UNKNOWN, 9, None)


def test_a_run_that_asks_again_waits_for_nothing_else_any_more() -> None:
    story = Story().at(0).queued("a", 1).at(9).queued("a", 2)
    first, second = story.history().waits
    assert (first.outcome, s(first.ended_ms), second.ended_ms) == (UNKNOWN, 9, None)


def test_types_that_are_not_known_are_passed_over() -> None:
    history = Story().at(1).tell("invented", slice="s").tell("held").history()
    assert history.count(Window(0, history.now_ms)) == 2


def test_events_are_counted_by_window_and_forgotten() -> None:
    history = Story().at(0).turn("a", 1, held=2).at(10).turn("a", 2, held=2).history()
    begin, end = history.begin_ms, history.now_ms
    everything, half = (history.count(Window(since, end)) for since in (begin, begin + 5_000))
    assert everything == 2 * half > 0
    history.forget(begin + 5_000)
    assert history.count(Window(begin, end)) == half


def test_any_part_of_a_history_can_be_read() -> None:
    """Whatever is missing, nothing breaks and nothing ends before it begins."""
    story = two_jobs()
    for seed in range(200):
        rest = random.Random(seed).sample(story.events, k=random.Random(seed).randint(1, len(story.events)))
        history = History(sorted(rest, key=lambda one: one.t_ms))
        for seen in history.slices.values():
            for one in (*seen.turns, *seen.switches):
                assert one.ended_ms is None or one.ended_ms >= one.began_ms
            for before, after in zip(seen.turns, seen.turns[1:], strict=False):
                assert before.ended_ms is not None and before.ended_ms <= after.began_ms


def test_what_is_over_can_be_forgotten() -> None:
    history = two_jobs().history()
    history.forget(round((START_S + 11) * 1000))
    assert [one.job for one in history.slices["s"].turns] == ["b"]
    assert [one.job for one in history.waits] == ["b"]
    history.feed(Event.of("1-0", {"type": "held", "t": str(history.now_ms), "run": "c", "slices": "s"}))
    assert history.slices["s"].turn is not None
