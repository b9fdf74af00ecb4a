"""State charts."""

from __future__ import annotations

from enum import StrEnum

import pytest

from slicelock.states import TRANSITIONS, RequestState, RunState, SliceState, advance


@pytest.mark.parametrize("kind", TRANSITIONS, ids=lambda kind: kind.__name__)
def test_every_state_has_a_row_and_can_be_reached(kind: type[StrEnum]) -> None:
    chart = TRANSITIONS[kind]
    assert set(chart) == set(kind)
    first = next(iter(kind))
    reached, front = {first}, [first]
    while front:
        new = chart[front.pop()] - reached
        reached |= new
        front += new
    assert reached == set(kind)


def test_advance_allows_what_the_chart_says() -> None:
    assert advance(RequestState.QUEUED, RequestState.SWITCHING) is RequestState.SWITCHING
    assert advance(RequestState.SWITCHING, RequestState.QUEUED) is RequestState.QUEUED
    assert advance(SliceState.FREE, SliceState.FREE) is SliceState.FREE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (RequestState.ENDED, RequestState.QUEUED),
        (RequestState.HELD, RequestState.QUEUED),
        (RequestState.GATHERING, RequestState.HELD),
        (SliceState.HELD, SliceState.SWITCHING),
        (RunState.SAVED, RunState.LOADED),
        (RunState.LOST, RunState.LOADED),
    ],
)
def test_advance_refuses_the_rest(old: StrEnum, new: StrEnum) -> None:
    with pytest.raises(ValueError, match=f"cannot go from {old} to {new}"):
        advance(old, new)
