"""Figures of a history that was computed by hand.

Slice `s` has two devices. a and b take turns, each switch takes a while, and once the slice is blocked:

     a  ask 0 · held 2 ──── 20    ask 30 ······· held 44 ────── 70
     b     ask 5 ·········· held 23 ───── 40        ask 60 ········· held 76 ── 90
     s  switch 0─2       switch 20─23  switch 40─44   blocked 70─75, switch 75─76      100
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from slicelock.history import History, fold
from slicelock.history.report import Report, report
from slicelock.history.slices import UNEXPLAINED
from tests.support.history import START_S, Story

DEVICES = {"s": 2}


def story() -> Story:
    told = Story().at(0).switching("a", 1)
    told.at(2).ready("a", 1).held("a", 1, waited=2, phase="train")
    told.at(5).queued("b", 1)
    told.at(20).ended("a", 1, held=18, phase="train").switching("b", 1)
    told.at(23).ready("b", 1, bytes=4_000_000_000, busy=60).held("b", 1, waited=18, phase="generate")
    told.at(30).queued("a", 2)
    told.at(40).ended("b", 1, held=17, phase="generate").switching("a", 2)
    told.at(44).ready("a", 2, bytes=6_000_000_000, busy=80).held("a", 2, waited=14, phase="train")
    told.at(60).queued("b", 2)
    told.at(70).ended("a", 2, held=26, phase="train")
    told.tell("blocked", slice="s", node="n1", kind="silent", reason="node n1 is silent")
    told.at(75).tell("healed", slice="s", node="n1").switching("b", 2)
    told.at(76).ready("b", 2).held("b", 2, waited=16, phase="generate")
    told.at(90).ended("b", 2, held=14, phase="generate", outcome="expired")
    return told.at(100).tell("heard", node="n1")


def made(**facts: Any) -> Report:
    return report(story().history(), devices=DEVICES, **facts)


@pytest.fixture(scope="module")
def whole() -> Report:
    return made()


def test_the_slice(whole: Report) -> None:
    [one] = whole.slices
    assert (one.slice, one.devices, one.duty, one.utilisation) == ("s", 2, 0.75, 70.0)
    assert one.phases == {"train": 0.44, "generate": 0.31}
    assert (one.switches, one.moving_switches, one.switching_s, one.bytes) == (4, 2, 10.0, 10_000_000_000)
    assert (one.idle_waiting_s, one.idle_waiting) == (15.0, {"switching": 10.0, "blocked": 5.0})


def test_the_longest_waits_and_what_they_were_for(whole: Report) -> None:
    first, second, third, fourth = whole.slices[0].longest_waits
    assert (first.request, first.seconds, first.outcome) == ("b-1/main/1", 18.0, "held")
    assert first.causes == {"held by a": 15.0, "its own switch": 3.0}
    assert second.causes == {"held by a": 10.0, "blocked: node n1 is silent": 5.0, "its own switch": 1.0}
    assert third.causes == {"held by b": 10.0, "its own switch": 4.0}
    assert fourth.causes == {"its own switch": 2.0}


def test_the_jobs(whole: Report) -> None:
    a, b = whole.jobs
    assert (a.job, a.runs, a.turns, a.ended) == ("a", 1, 2, {"yielded": 2})
    assert (b.job, b.runs, b.turns, b.ended) == ("b", 1, 2, {"yielded": 1, "expired": 1})
    assert (a.wait_p50_s, a.wait_p95_s, a.wait_max_s) == (2.0, 14.0, 14.0)
    assert (b.wait_p50_s, b.wait_p95_s, b.wait_max_s) == (16.0, 18.0, 18.0)
    assert (a.held_s, a.phases, a.share) == (44.0, {"train": 44.0}, {"s": 0.44})
    assert (b.held_s, b.phases, b.share) == (31.0, {"generate": 31.0}, {"s": 0.31})
    assert (a.switches, a.switch_s, a.bytes) == (2, 6.0, 6_000_000_000)
    assert (b.switches, b.switch_s, b.bytes) == (2, 4.0, 4_000_000_000)


def test_whether_it_was_worth_it(whole: Report) -> None:
    a, b = whole.jobs
    assert (a.now_s, a.alone_s, b.now_s, b.alone_s) == (70.0, 54.0, 85.0, 51.0)
    hour = 3600
    assert a.gpu_hours_alone * hour == pytest.approx(108)
    assert b.gpu_hours_alone * hour == pytest.approx(102)
    assert a.gpu_hours_shared * hour == pytest.approx(2 * (5 + 65 / 2))
    assert b.gpu_hours_shared * hour == pytest.approx(2 * (65 / 2 + 20))
    assert a.saved_gpu_hours * hour == pytest.approx(33)
    assert b.saved_gpu_hours * hour == pytest.approx(-3)
    assert whole.saved_gpu_hours * hour == pytest.approx(30)
    assert whole.saved_share == pytest.approx(30 / 210)
    assert a.slower == pytest.approx(70 / 54 - 1)
    assert a.like_it_saved_share == pytest.approx(1 - 88 / 108)
    assert b.like_it_saved_share == pytest.approx(1 - 62 / 102)


def test_the_jobs_shares_add_up_to_the_whole(whole: Report) -> None:
    assert whole.saved_gpu_hours == pytest.approx(sum(one.saved_gpu_hours for one in whole.jobs))
    assert sum(one.share["s"] for one in whole.jobs) == pytest.approx(whole.slices[0].duty)


def test_only_a_window_of_it() -> None:
    window = made(since_ms=round((START_S + 50) * 1000))
    assert window.window.length_ms == 50_000
    [one] = window.slices
    assert (one.duty, one.switching_s) == (0.68, 1.0)
    assert one.idle_waiting == {"blocked": 5.0, "switching": 1.0}
    a, b = window.jobs
    assert (a.turns, a.now_s, a.alone_s, a.held_s, a.wait_max_s) == (1, 20.0, 20.0, 20.0, 0.0)
    assert (b.turns, b.now_s, b.alone_s, b.held_s, b.wait_max_s) == (1, 40.0, 24.0, 14.0, 16.0)
    assert one.longest_waits[0].causes["held by a"] == 10.0


def test_what_goes_on_lasts_to_the_end_of_the_window() -> None:
    told = Story().at(0).held("a", 1).at(4).queued("b", 1).at(10).tell("heard", node="n1")
    figures = report(told.history(), until_ms=round((START_S + 20) * 1000))
    a, b = figures.jobs
    assert (figures.slices[0].duty, a.held_s, a.ended) == (1.0, 20.0, {})
    assert (b.turns, b.wait_max_s, b.now_s, b.alone_s) == (0, 0.0, 16.0, 0.0)
    assert b.slower == 0.0
    assert figures.slices[0].longest_waits[0].outcome == "waits"


# ---------------------------------------------------------------- why a slice is idle although somebody waits


def idle(told: Story, name: str = "s") -> dict[str, float]:
    return next(one for one in report(told.history()).slices if one.slice == name).idle_waiting


def test_idle_while_members_gather() -> None:
    assert idle(Story().at(8).held("a", 1, waited=5).at(9).ended("a", 1, held=1)) == {}
    told = Story().at(0).tell("heard", node="n").at(8).queued("a", 1, gathering=5).held("a", 1, waited=5)
    assert idle(told) == {"gathering": 5.0}


def test_idle_while_it_settles_drains_or_is_kept() -> None:
    told = Story().at(0).tell("declared", slice="s", nodes="n").queued("a", 1)
    told.at(3).tell("settled", slice="s").tell("kept", slice="s", request="x/main/1")
    told.at(4).tell("epoch").at(5).tell("settled", slice="s")
    told.tell("blocked", slice="s", node="*", kind="drain", reason="drained")
    told.at(9).tell("healed", slice="s", node="*").held("a", 1, waited=9)
    assert idle(told) == {"settling": 4.0, "draining": 4.0, "kept": 1.0}


def test_idle_while_its_first_waiter_waits_for_other_slices() -> None:
    told = Story("t").at(0).held("b", 1)
    told.slices = "s t"
    told.at(2).queued("a", 1)
    told.at(9).ended("b", 1, held=9, slices="t").switching("a", 1, "s").switching("a", 1, "t")
    told.at(10).held("a", 1, waited=8)
    assert idle(told) == {"other slices": 7.0, "switching": 1.0}
    long = next(one for one in report(told.history()).slices if one.slice == "s").longest_waits[0]
    assert long.causes == {"held by b": 7.0, "its own switch": 1.0}


def test_idle_without_a_reason_is_told_as_such() -> None:
    told = Story().at(0).queued("a", 1).at(6).held("a", 1, waited=6)
    assert idle(told) == {UNEXPLAINED: 6.0}


# ---------------------------------------------------------------- several runs and lanes


def test_lanes_of_a_run_overlap() -> None:
    told = Story("s").at(0).held("a", 1, lane="rollout")
    told.at(2).of("queued", "a", 1, slices="t", lane="train")
    told.at(8).of("held", "a", 1, slices="t", lane="train", waited_ms=6000)
    told.at(10).ended("a", 1, held=10, lane="rollout")
    told.at(12).of("ended", "a", 1, slices="t", lane="train", held_ms=4000, outcome="yielded")
    [a] = report(told.history()).jobs
    assert (a.turns, a.held_s, a.now_s, a.alone_s) == (2, 12.0, 12.0, 12.0)


def test_runs_of_a_job_are_counted_apart() -> None:
    told = Story().at(0).turn("a", 1, held=2, run="a-1").at(50).turn("a", 1, held=3, run="a-2")
    [a] = report(told.history()).jobs
    assert (a.runs, a.turns, a.now_s, a.held_s) == (2, 2, 5.0, 5.0)


def test_alone_in_the_pool_nothing_is_saved_and_nothing_lost() -> None:
    told = Story().at(0).turn("a", 1, held=2).at(5).turn("a", 2, held=5)
    figures = report(told.history())
    assert (figures.saved_gpu_hours, figures.jobs[0].slower) == (0.0, 0.0)


def test_a_job_that_always_evicts_shares_with_nobody() -> None:
    told = Story()
    for k in (1, 2):
        told.at(10 * k).turn("a", k, held=4)
        told.switching("a", k, run="a-1.evict-0", phase="evict")
        told.at(10 * k + 6).turn("a", k, held=1, waited=3, run="a-1.evict-0", phase="evict")
    [a] = report(told.history()).jobs
    assert (a.runs, a.turns, a.phases, a.switches) == (1, 2, {"(no phase)": 8.0}, 0)
    assert (a.wait_max_s, a.now_s, a.saved_gpu_hours, a.slower) == (0.0, 14.0, 0.0, 0.0)


# ---------------------------------------------------------------- the report as a whole


def test_events_outside_of_the_window_do_not_count() -> None:
    begin = round(START_S * 1000)
    told = Story().at(0).turn("a", 1, held=2).at(10).turn("a", 2, held=5)
    everything = len(told.events)
    assert report(told.history()).events == everything
    assert report(told.history(), since_ms=begin + 5_000).events == everything / 2
    assert report(told.history(), since_ms=begin + 5_000, until_ms=begin + 5_000).events == 0


def test_nothing_has_happened() -> None:
    empty = report(History())
    assert (empty.jobs, empty.slices, empty.saved_share) == ((), (), 0.0)
    json.dumps(empty.as_json())


def test_whether_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = round(START_S * 1000)
    assert made().complete
    assert made(since_ms=begin + 5).complete
    assert made(since_ms=begin - 5000).complete  # the pool is younger than that
    with monkeypatch.context() as patch:
        patch.setattr(fold, "KEPT", len(story().events))
        assert not made(since_ms=begin - 5000).complete  # the stream is full, and may have been trimmed
    forgetful = story().history()
    forgetful.forget(begin)
    assert not report(forgetful, since_ms=begin - 5000).complete
    told = story()
    told.tell("gap", reason="trimmed")
    assert not report(told.history()).complete


def test_as_json(whole: Report) -> None:
    told = json.loads(json.dumps(whole.as_json()))
    assert told["total"]["saved_share"] == pytest.approx(30 / 210, abs=1e-6)
    assert told["jobs"][0]["saved_gpu_hours"] == pytest.approx(33 / 3600, abs=1e-6)
    assert told["slices"][0]["longest_waits"][0]["causes"] == {"held by a": 15.0, "its own switch": 3.0}
    assert told["events"] == len(story().events)
