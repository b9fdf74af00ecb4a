"""Events as lines, and the option `--since`."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from slicelock.cli import event_lines
from slicelock.cli.failures import ExitCode
from slicelock.cli.since import since_ms
from slicelock.events import Event
from tests.cli.conftest import Call

TURN = {"run": "r1", "job": "digits", "lane": "main", "k": "3", "slices": "s t", "phase": "train"}


def plain(kind: str, **facts: str) -> str:
    return event_lines.line(Event.of("1-0", {"type": kind, "t": "1700000000123", **facts})).plain


def test_a_line_says_when_what_where_and_who() -> None:
    text = plain("held", **TURN, waited_ms="83000")
    when = f"{datetime.fromtimestamp(1_700_000_000):%Y-%m-%d %H:%M:%S}.123"
    assert text.split(maxsplit=7) == [*when.split(), "held", "s,t", "digits", "train", "#3", "waited 1m 23s"]


@pytest.mark.parametrize(
    ("kind", "facts", "told"),
    [
        (
            "ended",
            {"outcome": "expired", "held_ms": "1500", "reason": "no word"},
            "expired · held 1.5 s · no word",
        ),
        (
            "failed",
            {"slice": "s", "node": "n1", "fence": "7", "reason": "no room"},
            "node n1 · no room · fence 7",
        ),
        ("ready", {"slice": "s", "node": "n1", "bytes": "0", "seconds": "0.1"}, "node n1 · nothing to move"),
        ("ready", {"slice": "s", "bytes": "1500000000", "seconds": "2"}, "1.5 GB in 2.0 s"),
        ("queued", {**TURN, "waited_ms": "0"}, "#3"),
        ("queued", {**TURN, "waited_ms": "1500"}, "gathered for 1.5 s"),
        ("silent", {"node": "n1"}, "node n1"),
        ("clock", {"step_ms": "7927"}, "nothing called for 7.9 s, or the clock stepped forward"),
        ("clock", {"step_ms": "-2000"}, "the clock stepped back by 2.0 s"),
        ("gap", {"reason": "lost"}, "lost"),
    ],
)
def test_what_else_a_line_says(kind: str, facts: dict[str, str], told: str) -> None:
    assert plain(kind, **facts).endswith(told)


def test_the_steps_of_a_switch_are_told_one_by_one() -> None:
    steps = [
        {"step": "evict", "run": "r2", "way": "hooks", "bytes": 6_000_000_000, "seconds": 2.0},
        {"step": "verify", "run": "r2", "seconds": 0.05},
    ]
    text = plain("ready", slice="s", steps=json.dumps(steps), bytes="6000000000", seconds="2.1")
    assert "evict r2 6 GB in 2.0 s at 3.0 GB/s · verify r2 in 50 ms" in text


# ---------------------------------------------------------------- since


def test_since() -> None:
    now = 1_700_000_000_000
    assert since_ms("10m", now) == now - 600_000
    assert since_ms("1.5h", now) == now - 5_400_000
    assert since_ms("2023-11-14T22:13:20+00:00", 0) == now
    assert since_ms("2023-11-14T22:13", now) == int(datetime(2023, 11, 14, 22, 13).timestamp() * 1000)
    assert since_ms("99999d", 5) == 0


def test_since_of_the_future(call: Call) -> None:
    ended = call("events", "--since", "2999-01-01")
    assert ended.code == ExitCode.USAGE and "lies in the future" in ended.complaint


@pytest.mark.parametrize("text", ["ten", "10", "-5m", "10y", "", "2026-13-01", "99999999999d"])
def test_since_that_makes_no_sense(call: Call, text: str) -> None:
    if text:
        ended = call("events", "--since", text)
        assert ended.code == ExitCode.USAGE and "neither" in ended.complaint
    else:
        with pytest.raises(Exception, match="neither"):
            since_ms(text, 0)
