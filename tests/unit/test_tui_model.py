"""What keys do in `slicelock top`, and what it tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slicelock.picture import Picture
from slicelock.tui.intents import DrainSlices, RevokeTurn
from slicelock.tui.model import Mode, Sort, View
from slicelock.tui.palette import REMEMBERED, Palette
from slicelock.tui.recorded import recorded
from tests.support.top_states import STATES


@pytest.fixture
def view() -> View:
    return recorded(STATES / "busy.json", may_act=True)


def press(view: View, *keys: str) -> object:
    """The last key's intent."""
    done: object = None
    for key in keys:
        done = view.press(key, 1.0)
    return done


def names(view: View) -> list[str]:
    return [one.name for one in view.slices()]


def test_moving_stays_within_the_list(view: View) -> None:
    assert view.selected == "judges"
    for keys, selected in ((("j", "down"), "sandbox"), (("k",), "samplers"), (("end", "j"), "trainers")):
        press(view, *keys)
        assert view.selected == selected
    press(view, "page up", "up")
    assert view.selected == "judges"


def test_every_order_is_reached_and_the_first_comes_back(view: View) -> None:
    first = {}
    for _ in Sort:
        first[view.sort] = names(view)[0]
        press(view, "s")
    assert view.sort is Sort.NAME
    assert first == {
        Sort.NAME: "judges",
        Sort.STATE: "samplers",
        Sort.QUEUE: "trainers",
        Sort.WAIT: "samplers",
        Sort.HELD: "judges",
    }


def test_a_filter_looks_at_slices_jobs_states_and_nodes(view: View) -> None:
    for text, left in (("dpo", ["trainers"]), ("gpu-3", ["samplers"]), ("free", ["sandbox"]), ("xyz", [])):
        press(view, "/", "clear", *text, "enter")
        assert names(view) == left, text
        assert view.mode is Mode.LIST
    press(view, "escape")
    assert len(names(view)) == 4


def test_while_typing_keys_are_text(view: View) -> None:
    press(view, "/", "q", "p", "backspace")
    assert (view.filter, view.quit, view.paused) == ("q", False, False)
    press(view, "escape")
    assert (view.filter, view.mode) == ("", Mode.LIST)


def test_revoking_asks_first_and_means_the_turn_that_was_named(view: View) -> None:
    assert press(view, "end", "r") is None
    assert view.question is not None and "grpo-math on trainers" in view.question.ask
    assert view.picture is not None
    gone = tuple(replace(one, holder=None, state="free") for one in view.picture.slices)
    view.take_picture(replace(view.picture, slices=gone), 1.0)
    assert press(view, "y") == RevokeTurn("grpo-math-7f/main/14", "trainers")
    assert view.question is None and view.mode is Mode.LIST


@pytest.mark.parametrize("key", ["n", "enter", " ", "q", "escape", "r"])
def test_only_y_says_yes(view: View, key: str) -> None:
    press(view, "end", "r")
    assert press(view, key) is None
    assert (view.question, view.quit, view.paused) == (None, False, False)
    assert press(view, "y") is None


def test_draining_a_slice_and_back(view: View) -> None:
    assert press(view, "end", "d", "y") == DrainSlices(("trainers",), True, "trainers")
    ill = recorded(STATES / "trouble.json", may_act=True)
    assert press(ill, "j", "d", "y") == DrainSlices(("samplers",), False, "samplers")


def test_draining_a_node_tab_takes_another(view: View) -> None:
    assert press(view, "end", "D", "tab", "y") == DrainSlices(("trainers",), True, "node gpu-2")
    assert press(view, "D", "tab", "tab", "y") == DrainSlices(("trainers",), True, "node gpu-1")


def test_there_is_nothing_to_revoke_on_a_free_slice(view: View) -> None:
    press(view, "j", "j", "r")
    assert view.question is None and view.notice(1.0) is not None
    press(view, "D")
    assert view.question is None, "it has no node"


@pytest.mark.parametrize("facts", [{"may_act": False}, {"may_act": True, "readonly": True}])
def test_without_rights_or_readonly_there_are_no_actions(facts: dict[str, bool]) -> None:
    view = recorded(STATES / "busy.json", **facts)
    for key in ("r", "d", "D"):
        assert press(view, key, "y") is None
        assert view.question is None


def test_enter_opens_and_help_comes_back_to_where_it_was(view: View) -> None:
    press(view, "enter", "?")
    assert view.opened and view.mode is Mode.HELP
    press(view, "x")
    assert view.mode is Mode.DETAILS
    press(view, "escape")
    assert view.mode is Mode.LIST and not view.opened


def later(view: View, **facts: object) -> Picture:
    assert view.picture is not None
    return replace(view.picture, now_ms=view.picture.now_ms + 5_000, **facts)  # type: ignore[arg-type]


def test_a_paused_view_stands_still_and_goes_on_with_what_came(view: View) -> None:
    press(view, "p")
    before = view.picture
    view.take_picture(later(view), 5.0)
    assert (view.picture, view.now_ms(9.0)) == (before, before.now_ms if before else 0)
    press(view, " ")
    assert view.picture is not before
    assert view.picture is not None and view.now_ms(5.0) == view.picture.now_ms


def test_an_outage_is_told_after_three_seconds_and_its_end(view: View) -> None:
    told = view.notice(8.2)
    assert told is not None and told.text == "no answer from redis:6379 for 8 s"
    view.take_failure("refused")
    assert view.notice(2.9) is None and not view.is_stale(2.9)
    told = view.notice(8.2)
    assert told is not None and told.text == "no answer for 8 s: refused" and told.bad
    assert view.now_ms(8.2) == view.now_ms(0.0), "times stand still"
    view.take_picture(later(view), 9.0)
    told = view.notice(9.5)
    assert told is not None and told.text == "redis:6379 answers again"
    assert view.notice(60.0) is not None, "no answer for a while again"


def test_a_failover_is_told(view: View) -> None:
    view.take_picture(later(view, epoch=4), 1.0)
    told = view.notice(1.0)
    assert told is not None and told.text == "redis:6379 began anew or took over (epoch 4); the view goes on"


def test_another_primary_is_told_also_before_anybody_writes_there(view: View) -> None:
    view.place = "redis-2:6379"
    view.take_picture(later(view), 1.0)
    told = view.notice(1.0)
    assert told is not None and told.text == "redis-2:6379 has taken over; the view goes on"
    view.news = None
    view.take_picture(later(view), 2.0)
    assert view.notice(2.0) is None


def test_an_empty_server_after_an_outage_has_begun_anew_and_the_view_goes_on(view: View) -> None:
    view.take_failure("refused")
    view.take_picture(later(view, slices=(), nodes=(), gathering=()), 1.0)
    told = view.notice(1.0)
    assert told is not None and "began anew" in told.text
    assert names(view) == []
    assert press(view, "j", "r", "d", "enter") is None


def test_an_operator_may_forget_the_last_slice(view: View) -> None:
    view.take_picture(later(view, slices=()), 1.0)
    told = view.notice(1.0)
    assert told is not None and told.text == "the pool has no slices any more"


def test_jobs_keep_their_colours(view: View) -> None:
    jobs = sorted(view.tracks.jobs())
    colours = [view.palette.colour(job) for job in jobs]
    assert len(set(colours)) == len(jobs)
    view.palette.meet(["another", "aaa"])
    assert [view.palette.colour(job) for job in jobs] == colours


def test_past_jobs_are_forgotten_and_those_that_are_there_keep_their_signs() -> None:
    palette, early = Palette(), ""
    stays = [f"stays-{number}" for number in range(6)]
    palette.meet(stays)
    signs = [(palette.colour(job), palette.letter(job)) for job in stays]
    for number in range(5 * REMEMBERED):
        palette.meet([*stays, f"past-{number}"])
        assert len(palette) <= REMEMBERED
        if number == REMEMBERED // 2:
            early = palette.letter("past-0")
    assert early != "?" and palette.letter("past-0") == "?"
    assert [(palette.colour(job), palette.letter(job)) for job in stays] == signs
    assert len(set(signs)) == len(stays)


def test_what_redis_answers_cannot_command_the_terminal(view: View) -> None:
    view.tell("not done: x\x1b[2J\ny", 1.0)
    told = view.notice(1.0)
    assert told is not None and told.text == "not done: x␛[2J y"
    view.take_failure("x\x1b[2J")
    assert view.failing == "x␛[2J"
