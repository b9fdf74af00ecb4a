"""What the agent does next, as a pure function of what is wanted and what is here."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slicelock_agent.reconcile import (
    DAY_OF_FENCES,
    REST,
    Action,
    Admitted,
    Here,
    Stay,
    Step,
    Wanted,
    next_action,
)

from slicelock.states import RunState

NOW = 1_800_000_000_000
F = NOW * 1024
B = Wanted("switching", F, "b", "main", 3)


def here(
    *stays: Stay, top: int = 0, admitted: Admitted | None = None, dead: str = "", strange: bool = False
) -> Here:
    return Here(top, admitted, {stay.run: stay for stay in stays}, frozenset(dead.split()), strange)


def stay(run: str, state: RunState = RunState.LOADED, **facts: object) -> Stay:
    return Stay(run, state, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "seen", "action"),
    [
        (Wanted(), here(), REST),
        (Wanted("held", F, "b"), here(stay("a")), REST),
        (Wanted("switching", F, "b", settling=True), here(stay("a")), REST),
        (Wanted("switching", F, "b", known=False), here(stay("a")), REST),
        (B, here(), Action(Step.ADMIT, "b")),
        (B, here(stay("b")), Action(Step.ADMIT, "b")),
        (B, here(stay("b"), top=F, admitted=B.turn), Action(Step.ADMIT, "b")),
        (B, here(stay("b", hooked=True)), Action(Step.RELOAD, "b")),
        (B, here(stay("b", RunState.SAVED)), Action(Step.RESTORE, "b")),
        (B, here(stay("b", RunState.SAVED), stay("a")), Action(Step.EVICT, "a")),
        (B, here(stay("a", RunState.SAVED)), Action(Step.ADMIT, "b")),
        (B, here(stay("a", RunState.POISONED)), Action(Step.EVICT, "a")),
        (B, here(stay("a", RunState.LOST)), Action(Step.ADMIT, "b")),
        (B, here(stay("b", RunState.LOST)), Action(Step.REFUSE, "b", "the run's state here is lost")),
        (B, here(stay("a"), dead="a"), Action(Step.DROP, "a")),
        (Wanted(), here(stay("a", RunState.SAVED), dead="a"), Action(Step.DROP, "a")),
        (Wanted(settling=True), here(stay("a", RunState.SAVED), dead="a"), REST),
        (B, here(stay("b"), dead="b"), Action(Step.DROP, "b")),
        (B, here(dead="b"), REST),
        (B, here(strange=True), Action(Step.WIPE)),
        (B, here(stay("b", RunState.SAVED), strange=True), Action(Step.WIPE)),
        (B, here(stay("a", RunState.SNAPSHOTTING)), Action(Step.FIND_OUT, "a")),
        (Wanted(settling=True), here(stay("a", RunState.RESTORING)), Action(Step.FIND_OUT, "a")),
        (B, here(stay("b", RunState.UNKNOWN)), Action(Step.FIND_OUT, "b")),
    ],
)
def test_what_comes_next(wanted: Wanted, seen: Here, action: Action) -> None:
    assert next_action(wanted, seen, NOW) == action


@pytest.mark.parametrize(
    ("fence", "top", "admitted", "why"),
    [
        (F - 1, F, None, "is below"),
        (F, F, Admitted("a", "main", 1, F), "was admitted for another turn"),
        (F, F, Admitted("b", "main", 2, F), "was admitted for another turn"),
    ],
)
def test_fences_that_are_refused(fence: int, top: int, admitted: Admitted | None, why: str) -> None:
    action = next_action(Wanted("switching", fence, "b", "main", 3), here(top=top, admitted=admitted), NOW)
    assert action.step is Step.REFUSE
    assert why in action.reason


def test_a_fence_of_the_far_future_blocks_the_node() -> None:
    """A clock is wrong, this node's or Redis'; no request is at fault."""
    ahead = Wanted("switching", F + DAY_OF_FENCES + 1024, "b", "main", 3)
    action = next_action(ahead, here(), NOW)
    assert (action.step, action.run) == (Step.BLOCK, "")
    assert "more than a day ahead of this node's clock: correct" in action.reason
    assert next_action(ahead, here(), NOW + 1).step is Step.ADMIT


def test_what_follows_a_fence_that_was_admitted_when_this_clock_was_ahead_too_is_admitted() -> None:
    top = F + 3 * DAY_OF_FENCES
    wanted = Wanted("switching", top + DAY_OF_FENCES, "b", "main", 3)
    assert next_action(wanted, here(top=top), NOW).step is Step.ADMIT
    assert next_action(replace(wanted, fence=top), here(top=top), NOW).step is Step.ADMIT
    assert next_action(replace(wanted, fence=top - 1), here(top=top), NOW).step is Step.REFUSE
    assert next_action(replace(wanted, fence=wanted.fence + 1), here(top=top), NOW).step is Step.BLOCK


def test_a_repeated_switch_is_admitted_again() -> None:
    assert next_action(B, here(stay("b"), top=F, admitted=B.turn), NOW).step is Step.ADMIT
    assert next_action(B, here(top=F, admitted=None), NOW).step is Step.ADMIT


def test_an_entry_of_a_beat_is_read() -> None:
    raw = {
        "state": "switching",
        "fence": "1839111283770368",
        "run": "r",
        "lane": "main",
        "k": "7",
        "settling": "0",
        "known": "1",
        "settings": {"fallback": "hooks,kill"},
    }
    assert Wanted.of(raw) == Wanted("switching", 1839111283770368, "r", "main", 7, ways=("hooks", "kill"))


@pytest.mark.parametrize(
    ("settings", "ways"),
    [
        ({}, ()),
        ([], ()),
        (None, ()),
        ("no json", ()),
        ('{"fallback": ["cuda"]}', ("cuda",)),
        ({"fallback": "hooks, kill"}, ("hooks", "kill")),
        ({"fallback": "hooks,magic"}, ()),
        ({"fallback": 3}, ()),
    ],
)
def test_a_slice_names_its_own_ways(settings: object, ways: tuple[str, ...]) -> None:
    assert Wanted.of({"state": "free", "settings": settings}).ways == ways


@pytest.mark.parametrize(
    "raw",
    [None, "x", [], {"fence": "high"}, {"fence": True}, {"fence": 1.5}, {"fence": [1]}, {"k": "one"}],
)
def test_an_entry_that_makes_no_sense_is_an_error(raw: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Wanted.of(raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["state", "fence", "run", "lane", "k", "settling", "settings"]), json_values
    )
)
def test_whatever_redis_says_is_read_or_refused(raw: dict[str, object]) -> None:
    try:
        wanted = Wanted.of(json.loads(json.dumps(raw)))
    except (ValueError, TypeError):
        return
    assert isinstance(next_action(wanted, here(stay("a")), NOW), Action)


states = st.sampled_from(list(RunState))


@given(
    st.dictionaries(st.sampled_from("abc"), states),
    st.sets(st.sampled_from("abc")),
    st.booleans(),
    st.integers(-1, 1),
)
def test_nobody_is_admitted_while_another_is_on_the_devices(
    runs: dict[str, RunState], dead: set[str], strange: bool, above: int
) -> None:
    seen = here(
        *(stay(run, state) for run, state in runs.items()),
        top=F - above,
        dead=" ".join(dead),
        strange=strange,
    )
    action = next_action(B, seen, NOW)
    if action.step in (Step.ADMIT, Step.RELOAD, Step.RESTORE):
        assert not {
            run for run in runs if runs[run] not in (RunState.SAVED, RunState.LOST, RunState.ABSENT)
        } - {"b"}
        assert above >= 0
        assert "b" not in dead
        assert not strange or runs.get("b") is RunState.LOADED
