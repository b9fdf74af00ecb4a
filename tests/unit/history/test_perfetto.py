"""The history as trace events, as the viewers' format asks for them."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from slicelock.bench.day import day
from slicelock.events import Event
from slicelock.history import History
from slicelock.history.perfetto import trace
from slicelock.history.report import report
from tests.support.history import START_S, Story
from tests.support.trace_events import complaints


def made(history: History, since_ms: int = 0) -> dict[str, Any]:
    return json.loads(json.dumps(trace(history, report(history, since_ms=since_ms), "lab")))


@pytest.fixture(scope="module")
def long_day() -> dict[str, Any]:
    return made(History(Event.of(f"{at}-{n}", fields) for n, (at, fields) in enumerate(day(1000))))


def by_kind(told: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in told["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def faults(history: History, since_ms: int = 0) -> list[str]:
    return complaints(json.dumps(trace(history, report(history, since_ms=since_ms), "lab")))


def test_a_long_day_keeps_to_the_format(long_day: dict[str, Any]) -> None:
    assert complaints(json.dumps(long_day)) == []
    kinds = by_kind(long_day)
    assert set(kinds) == {"X", "M", "s", "f", "C"} and len(kinds["s"]) > 100
    processes = [one["args"]["name"] for one in kinds["M"] if one["name"] == "process_name"]
    assert processes == ["pool lab", "slice pool-a", "slice pool-b"]


@pytest.mark.parametrize("seed", range(3))
def test_any_part_of_a_day_keeps_to_the_format(seed: int) -> None:
    """Some events are missing, and the window begins in the middle of things."""
    told = [Event.of(f"{at}-{n}", fields) for n, (at, fields) in enumerate(day(300, seed=seed))]
    chance = random.Random(seed)
    kept = [one for one in told if chance.random() < 0.8]
    middle = kept[len(kept) // 2].t_ms
    assert faults(History(kept)) == faults(History(kept), since_ms=middle) == []


def test_what_overlaps_is_on_threads_of_its_own() -> None:
    """Two runs of a job wait at once, two nodes are silent at once: no viewer can stack those."""
    told = Story().at(0).held("b", 1).at(1).queued("a", 1, run="a-1").at(2).queued("a", 1, run="a-2")
    for at, node in ((3, "n1"), (4, "n2")):
        told.at(at).tell("blocked", slice="s", node=node, kind="silent", reason=f"{node} is silent")
    for at, node in ((5, "n1"), (6, "n2")):
        told.at(at).tell("healed", slice="s", node=node)
    told.at(7).ended("b", 1, held=7).held("a", 1, waited=6, run="a-1").at(8).ended("a", 1, held=1, run="a-1")
    told.held("a", 1, waited=6, run="a-2").at(9).ended("a", 1, held=1, run="a-2")
    assert faults(told.history()) == []
    names = [
        one["args"]["name"] for one in by_kind(made(told.history()))["M"] if one["name"] == "thread_name"
    ]
    assert names == ["conditions", "conditions 2", "a", "a waits", "a waits 2", "b", "b waits"]


def test_a_turn_of_no_length_has_no_arrow() -> None:
    told = Story().at(0).turn("a", 1, held=2).turn("b", 1, held=0).at(3).turn("a", 2, held=1)
    assert faults(told.history()) == [] == by_kind(made(told.history()))["s"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: one["X"][0].pop("dur"), "not these fields: ['dur']"),
        (lambda one: one["X"][0].update(ts=-1), "ts is wrong"),
        (lambda one: one["X"][0].update(ts=0.5), "ts is wrong"),
        (lambda one: one["X"][0].update(tid=77), "thread (2, 77) has no name"),
        (lambda one: one["X"][1].update(ts=one["X"][0]["ts"] + 1, tid=one["X"][0]["tid"]), "ends after it"),
        (lambda one: one["M"][0].update(name="nonsense"), "no such metadata"),
        (lambda one: one["M"][1].update(pid=9), "process (2,) has no name"),
        (lambda one: one["s"][0].update(id="another"), "has not one beginning and one end"),
        (lambda one: one["s"][0].update(ts=one["f"][0]["ts"] + 1), "ends before it begins"),
        (lambda one: one["f"][0].update(ts=10**12), "hangs on nothing"),
        (lambda one: one["C"][0].update(args={"requests": "1"}), "a counter counts in numbers"),
        (lambda one: one["C"][-1].update(ts=0), "goes back"),
    ],
)
def test_faults_would_be_found(
    long_day: dict[str, Any], change: Callable[[dict[str, list[dict[str, Any]]]], object], says: str
) -> None:
    spoiled = json.loads(json.dumps(long_day))
    change(by_kind(spoiled))
    assert any(says in one for one in complaints(json.dumps(spoiled)))


def test_a_small_history() -> None:
    told = (
        Story()
        .at(0)
        .held("a", 1, phase="train")
        .at(2)
        .queued("b", 1)
        .at(4)
        .ended("a", 1, held=4, phase="train")
    )
    told.switching("b", 1).at(5).ready("b", 1, bytes=2_000_000_000, steps=STEPS).held("b", 1, waited=3)
    told.tell("gap", reason="trimmed").at(6).ended("b", 1, held=1)
    assert faults(told.history()) == []
    kinds = by_kind(made(told.history()))
    spans = {(one["cat"], one["name"]): (one["ts"], one["dur"]) for one in kinds["X"] if one["dur"]}
    assert spans == {
        ("turn", "train"): (0, 4_000_000),
        ("turn", "turn"): (5_000_000, 1_000_000),
        ("wait", "wait"): (2_000_000, 3_000_000),
        ("switch", "a → b"): (4_000_000, 1_000_000),
    }
    [switch] = [one for one in kinds["X"] if one["cat"] == "switch"]
    assert switch["args"]["n1 restore b-1"] == "2000000000 B in 0.500 s, 4.00 GB/s"
    assert [(one["name"], one["args"]["what"]) for one in kinds["i"]] == [("gap", "trimmed")]
    assert [one["args"]["requests"] for one in kinds["C"]] == [1, 0, 1, 0]


STEPS = '[{"step": "restore", "run": "b-1", "way": "sim", "bytes": 2000000000, "seconds": 0.5}]'


def test_only_a_window_of_it() -> None:
    told = Story().at(0).turn("a", 1, held=4).at(10).turn("a", 2, held=4)
    spans = by_kind(made(told.history(), since_ms=round((START_S + 2) * 1000)))["X"]
    assert [(one["ts"], one["dur"]) for one in spans if one["cat"] == "turn"] == [
        (0, 2_000_000),
        (8_000_000, 4_000_000),
    ]
