"""Strips, totals and usual lengths: from events, put right by pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slicelock.events import Event
from slicelock.picture import Picture, RequestView, SliceView
from slicelock.tui.tracks import EVENTS_KEPT, Tracks

T = 1_800_000_000_000


def event(kind: str, at: int, job: str = "a", k: int = 1, name: str = "s", **facts: str) -> Event:
    its = {"slices": name, "run": f"run-{job}", "job": job, "lane": "main", "k": str(k), "phase": "train"}
    return Event("", kind, T + at, {**its, **({"slice": name} if kind == "switching" else {}), **facts})


def turn(at: int, ms: int, job: str = "a", k: int = 1) -> list[Event]:
    """Half a second of switching, and the turn."""
    ended = event("ended", at + 500 + ms, job, k, outcome="yielded", held_ms=str(ms))
    return [event("switching", at, job, k), event("held", at + 500, job, k, waited_ms="500"), ended]


def picture(at: int, state: str = "free", job: str = "", since: int = 0, k: int = 1) -> Picture:
    name, run = "s", f"run-{job}"
    who = RequestView(
        f"{run}/main/{k}", run, job, "main", k, state, "train", 0, (name,), 1, 1, 0, since, 60_000, ""
    )
    one = SliceView(name, state, 1, {}, False, {}, "", who if job else None, (), 0, since)
    return Picture("p", 1, T + at, (one,), (), ())


def cells(tracks: Tracks, at: int, window: int = 10_000, width: int = 10) -> str:
    signs = {"free": ".", "switching": "~"}
    return "".join(signs.get(b.what, b.job) for b in tracks.strip("s", T + at, window, width))


def test_a_strip_shows_who_had_the_slice() -> None:
    tracks = Tracks()
    tracks.take([*turn(0, 2_500), *turn(4_000, 3_500, "b")])
    tracks.see(picture(9_999))
    assert cells(tracks, 9_999) == "aaa.bbbb.."
    assert cells(tracks, 10_000) == "aa.bbbb...", "it moves on by whole cells"


def test_totals_are_shares_of_the_slices_time() -> None:
    tracks = Tracks()
    tracks.take([*turn(0, 4_500), event("switching", 5_000, "b"), event("held", 6_000, "b")])
    tracks.see(picture(10_000, "held", "b", 4_000))
    told = tracks.totals(T + 10_000, 10_000)
    assert (told.duty, told.lost, told.lost_ms, told.switches) == (
        pytest.approx(0.85),
        pytest.approx(0.15),
        1_500,
        2,
    )
    shares = tracks.by_job(T + 10_000, 10_000)
    assert {job: (one.held_ms, one.turns) for job, one in shares.items()} == {
        "a": (4_500, 1),
        "b": (4_000, 1),
    }


def test_the_usual_length_is_the_median_of_the_last_turns() -> None:
    tracks = Tracks()
    for number, ms in enumerate((1_000, 9_000)):
        tracks.take(turn(number * 10_000, ms, k=number))
    assert tracks.usual_ms("s", "a", "train") is None, "two are too few"
    tracks.take(turn(30_000, 2_000, k=3))
    assert tracks.usual_ms("s", "a", "train") == 2_000
    assert tracks.usual_ms("s", "a", "generate") is None


def test_without_events_pictures_make_the_strip() -> None:
    tracks = Tracks()
    tracks.see(picture(5_000, "held", "a", 3_000))
    assert cells(tracks, 9_000) == "..aaaaaaaa"
    tracks.see(picture(7_000, "held", "b", 1_000))
    tracks.see(picture(8_000))
    assert cells(tracks, 9_000) == "..aaaaab.."


def test_a_picture_that_is_older_than_an_event_changes_nothing() -> None:
    tracks = Tracks()
    tracks.take(turn(0, 2_000))
    tracks.take([event("switching", 4_000, "b"), event("held", 4_100, "b")])
    tracks.see(picture(3_900))
    assert cells(tracks, 9_000).endswith("bbbbb")


def test_a_switch_that_was_given_up_is_no_turn() -> None:
    tracks = Tracks()
    tracks.take([event("switching", 0)])
    tracks.see(picture(3_000))
    assert cells(tracks, 9_000) == "~~~......."
    assert tracks.by_job(T + 9_000, 10_000) == {}


def test_what_is_past_is_forgotten() -> None:
    tracks = Tracks()
    for number in range(50):
        tracks.take(turn(number * 30_000, 10_000, k=number))
        tracks.see(picture(number * 30_000 + 20_000))
    assert len(tracks.of("s").turns) < 40


def test_runs_that_are_past_are_forgotten() -> None:
    tracks = Tracks()
    tracks.take(turn(0, 500, "old"))
    for k in range(EVENTS_KEPT):
        tracks.take([event("queued", 5_000 + k, "new", k)])
    tracks.see(picture(3_600_000, "held", "holder"))
    assert (tracks.job_of("run-old"), tracks.job_of("run-new")) == ("", "new")
    assert tracks.job_of("run-holder") == "holder"


def test_slices_that_are_past_are_forgotten() -> None:
    tracks = Tracks()
    for number in range(20):
        tracks.take([replace(one, facts={**one.facts, "slices": f"s{number}"}) for one in turn(0, 500)])
        tracks.strip(f"s{number}", T + 1_000, 10_000, 10)
    assert tracks.of("s7").turns
    tracks.see(picture(3_600_000))
    assert not tracks.of("s7").turns and tracks.remembered <= {"s"}
