"""The history as trace events, as the viewers' format asks for them."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

from slicelock.bench.day import day
from slicelock.events import Event
from slicelock.history import History
from slicelock.history.perfetto import trace
from slicelock.history.report import report
from tests.support.history import START_S, Story

NEEDED = {
    "X": {"dur", "args", "cat"},
    "M": {"args"},
    "s": {"id", "cat"},
    "f": {"id", "cat", "bp"},
    "i": {"s"},
    "C": {"args"},
}


def made(history: History, since_ms: int = 0) -> dict[str, Any]:
    return json.loads(json.dumps(trace(history, report(history, since_ms=since_ms), "lab")))


@pytest.fixture(scope="module")
def long_day() -> dict[str, Any]:
    return made(History(Event.of(f"{at}-{n}", fields) for n, (at, fields) in enumerate(day(2000))))


def by_kind(told: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in told["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def test_every_event_is_complete(long_day: dict[str, Any]) -> None:
    assert set(by_kind(long_day)) == {"X", "M", "s", "f", "C"}
    for event in long_day["traceEvents"]:
        assert event.keys() >= {"ph", "name", "ts", "pid", "tid"} | NEEDED[event["ph"]]
        assert event["ts"] >= 0 and event.get("dur", 0) >= 0


def test_spans_of_a_thread_do_not_overlap(long_day: dict[str, Any]) -> None:
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in by_kind(long_day)["X"]:
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_every_thread_has_a_name(long_day: dict[str, Any]) -> None:
    kinds = by_kind(long_day)
    named = {(one["pid"], one["tid"]) for one in kinds["M"] if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in kinds["X"]} <= named
    processes = [one["args"]["name"] for one in kinds["M"] if one["name"] == "process_name"]
    assert processes == ["slice pool-a", "slice pool-b"]


def test_arrows_lead_from_one_span_to_another(long_day: dict[str, Any]) -> None:
    kinds = by_kind(long_day)
    begins = {one["id"]: one for one in kinds["s"]}
    assert begins.keys() == {one["id"] for one in kinds["f"]} != set()
    spans = [one for one in kinds["X"] if one["cat"] == "turn"]
    for arrow in kinds["f"][:20]:
        for end in (begins[arrow["id"]], arrow):
            assert any(
                (one["pid"], one["tid"]) == (end["pid"], end["tid"])
                and one["ts"] <= end["ts"] <= one["ts"] + one["dur"]
                for one in spans
            )


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
