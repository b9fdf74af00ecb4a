"""How far a step is, as beats tell it to people."""

from __future__ import annotations

from slicelock_agent.progress import bytes_used, progress_of
from slicelock_agent.reconcile import Action, Stay, Step

from slicelock.states import RunState

GIB = 1 << 30


def test_an_eviction_has_moved_what_is_in_use_no_longer() -> None:
    begun = progress_of(Action(Step.EVICT, "a"), None, 24 * GIB)
    assert begun is not None
    told = begun.told(used=6 * GIB)
    assert (told["step"], told["run"], told["bytes"]) == ("evicting", "a", 24 * GIB)
    assert (told["moved"], begun.told(25 * GIB)["moved"]) == (18 * GIB, 0)


def test_a_restore_has_moved_what_has_come_into_use() -> None:
    begun = progress_of(Action(Step.RESTORE, "b"), Stay("b", RunState.SAVED, bytes=8 * GIB), GIB)
    assert begun is not None
    assert begun.told(5 * GIB)["moved"] == 4 * GIB
    assert begun.told(90 * GIB)["moved"] == 8 * GIB, "never more than there is"


def test_where_nobody_knows_how_much_there_is_what_was_moved_still_shows() -> None:
    begun = progress_of(Action(Step.RELOAD, "b"), Stay("b", RunState.SAVED), 0)
    assert begun is not None
    told = begun.told(GIB)
    assert (told["bytes"], told["moved"]) == (0, GIB)


def test_a_step_that_moves_nothing_has_no_progress() -> None:
    assert progress_of(Action(Step.ADMIT, "a"), None, GIB) is None


def test_devices_may_not_know_what_is_in_use() -> None:
    assert bytes_used({"0": {"used": 3}, "1": {"used": None}, "2": {}}) == 3
