"""Events as data."""

from __future__ import annotations

import json
import re

import pytest

from slicelock.cli import event_lines
from slicelock.events import KEPT, Event
from slicelock.history import History
from slicelock.scripts import lua_root

HELD = {"type": "held", "t": "1700", "run": "r1", "job": "a", "lane": "main", "k": "3", "slices": "s t"}


def test_the_scripts_keep_as_many_events_as_is_said() -> None:
    limits = (lua_root() / "include" / "limits.lua").read_text()
    assert re.search(rf"^local EVENTS = {KEPT}\b", limits, re.MULTILINE)


def test_an_event_of_a_request() -> None:
    event = Event.of("1701-0", HELD | {"waited_ms": "12"})
    assert (event.type, event.t_ms, event.request, event.slices) == ("held", 1700, "r1/main/3", ("s", "t"))
    assert event.number("waited_ms") == 12.0
    assert event.concerns("s") and not event.concerns("u")


def test_the_slice_that_it_is_about_comes_first() -> None:
    assert Event.of("1-0", HELD | {"slice": "t"}).slices == ("t",)


def test_an_event_of_a_node_concerns_every_slice() -> None:
    assert Event.of("1-0", {"type": "silent", "t": "1", "node": "n"}).concerns("s")


def test_what_is_unknown_or_broken_is_passed_over() -> None:
    event = Event.of("1700-3", {"new": "thing", "held_ms": "x", "steps": "{", "k": "1"})
    assert (event.type, event.t_ms, event.request, event.steps) == ("unknown", 1700, "", ())
    assert event.number("held_ms") == 0.0
    assert event.text("new") == "thing"


@pytest.mark.parametrize(
    "steps",
    [
        '[{"bytes": 1' + "0" * 400 + "}]",
        "[" * 100_000,
        "null",
        "3",
        "[3]",
        '[{"bytes": "many"}]',
        '{"step": 1}',
    ],
)
def test_steps_that_make_no_sense(steps: str) -> None:
    assert Event.of("1-0", {"steps": steps}).steps == ()


def test_as_json() -> None:
    step = {"step": "evict", "run": "r2", "way": "hooks", "bytes": 3_000_000_000, "seconds": 1.5}
    told = Event.of(
        "1-0", HELD | {"type": "ready", "seconds": "1.5", "fence": "9", "steps": json.dumps([step])}
    )
    facts = told.as_json()
    assert (facts["k"], facts["fence"], facts["seconds"], facts["slices"]) == (3, 9, 1.5, ["s", "t"])
    assert facts["steps"] == [step | {"gb_per_s": 2.0}]
    json.dumps(facts)


def test_a_fence_keeps_its_digits() -> None:
    fence = (1 << 53) + 1
    assert Event.of("1-0", {"fence": str(fence)}).as_json()["fence"] == fence


@pytest.mark.parametrize("odd", ["²", "1e999", "-1e999", "nan", "-5", "9" * 19, "9" * 5000, "", "x"])
def test_odd_numbers_do_not_stop_who_reads_them(odd: str) -> None:
    numbers = dict.fromkeys(("t", "k", "fence", "waited_ms", "held_ms", "bytes", "seconds", "busy"), odd)
    for kind in ("queued", "held", "ready", "failed", "ended", "clock"):
        event = Event.of("1700-0", HELD | numbers | {"type": kind})
        assert "  s,t" in event_lines.line(event).plain
        json.dumps(event.as_json(), allow_nan=False)
        History([event]).forget(0)


@pytest.mark.parametrize("odd", ["1e999", "-1e999", "-3", "NaN"])
def test_a_step_never_took_or_moved_less_than_nothing(odd: str) -> None:
    (step,) = Event.of("1-0", {"steps": f'[{{"bytes": {odd}, "seconds": {odd}}}]'}).steps
    assert (step.bytes, step.seconds) == (0, 0.0)


def test_what_others_wrote_is_one_printable_line() -> None:
    wild = "x\x1b]0;PWNED\x07\x1b[2J\ny\x9b\u202e\ud800"
    steps = json.dumps([{"step": wild, "run": wild, "way": wild}])
    event = Event.of(
        "1-0", {"type": wild, "run": "r", "job": wild, "slice": wild, "steps": steps, wild: wild}
    )
    line = event_lines.line(event).plain
    assert line.isprintable() and "x␛]0;PWNED␇␛[2J y" in line
    assert all(text.isprintable() for text in (event.type, *event.facts, *event.facts.values()))
