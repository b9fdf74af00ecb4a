"""`slicelock bench history`, briefly: that it measures what it says."""

from __future__ import annotations

import pytest

from slicelock.bench import history
from slicelock.bench.day import day
from slicelock.scripts import load


def test_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROUNDS", 1)
    monkeypatch.setattr(history, "ROUND_S", 0.02)
    told: list[str] = []
    costs = history.measure(300, told.append)
    assert costs.events == 300
    assert costs.turn_s > 0 and costs.reported_s > 0 and costs.page_bytes > 10_000
    assert any(goal.name.startswith("writing events") for goal in costs.goals())
    assert costs.as_json()["events"] == 300
    assert told


def test_silent_scripts_write_no_events() -> None:
    with history.silent_scripts() as overlay:
        assert "XADD" in load("acquire").text
        assert "XADD" not in load("acquire", overlay).text


def test_a_day_is_the_same_each_time_and_in_order() -> None:
    told = day(1000)
    assert told == day(1000)
    assert [at for at, _ in told] == sorted(at for at, _ in told)
    assert {fields["type"] for _, fields in told} >= {"queued", "switching", "ready", "held", "ended"}
