"""The mode `observe`: the arithmetic of what sharing would gain."""

from __future__ import annotations

import pytest

from slicelock.client.observe import Meter
from slicelock.estimate import covered


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(0, 1), (2, 4)], 3.0),
        ([(2, 4), (0, 3)], 4.0),
        ([(0, 10), (2, 3)], 10.0),
        ([(0, 1), (1, 2)], 2.0),
    ],
)
def test_overlapping_turns_count_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered(spans) == seconds


def observed(busy: float, total: float = 100.0) -> str:
    meter = Meter()
    meter.enter(0.0)
    meter.leave("train", 0.0, busy)
    return meter.report("j1", total)


@pytest.mark.parametrize(("busy", "saved"), [(40, "50%"), (50, "50%"), (60, "40%"), (75, "25%"), (100, "0%")])
def test_two_like_jobs_save_what_neither_uses(busy: float, saved: str) -> None:
    assert f"{saved} saved" in observed(busy)


def test_phases_are_listed() -> None:
    meter = Meter()
    for at in (0.0, 10.0):
        meter.enter(at)
        meter.leave("train", at, at + 2)
    meter.leave("", 20.0, 21.0)
    text = meter.report("j1", 50.0)
    assert "j1 for 50.0 s" in text
    assert "10% of the time (5.0 s in 3 turns)" in text
    assert "(no phase)" in text
    assert "2.000 s each" in text


def test_nothing_seen_is_said() -> None:
    assert "no turn of j1" in Meter().report("j1", 5.0)
