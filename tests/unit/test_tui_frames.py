"""How states of a pool look: each is compared with its text in tests/data/top."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest

from slicelock.tui.glyphs import ASCII, UNICODE, glyphs_for
from slicelock.tui.paint import Painter
from slicelock.tui.panels import frame
from slicelock.tui.recorded import recorded
from tests.support.top_states import LOOKS, STATES


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_a_state_looks_as_it_should(name: str) -> None:
    kept = (STATES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert LOOKS[name].lines() == kept, "python -m tests.support.top_states writes them anew"


@pytest.mark.parametrize("name", sorted(LOOKS))
def test_no_line_is_longer_than_the_terminal_and_the_last_has_the_keys(name: str) -> None:
    look = LOOKS[name]
    lines = look.lines()
    assert max(map(len, lines)) <= look.width
    assert len(lines) in (1, look.height)


def painted(width: int, *, encoding: str = "utf-8", colour: bool | None = True) -> list[str]:
    view = recorded(STATES / "busy.json")
    painter = Painter(io.TextIOWrapper(io.BytesIO(), encoding=encoding), view.palette, colour=colour)
    return painter.lines(frame(view, 0.0, painter.pen, width, 24), width)


def test_with_colours_jobs_have_theirs_in_strips_and_names() -> None:
    text = "\n".join(painted(80))
    view = recorded(STATES / "busy.json")
    for job in ("grpo-math", "rlhf-code", "dpo-chat", "eval-suite"):
        red, green, blue = (int(view.palette.colour(job)[at : at + 2], 16) for at in (1, 3, 5))
        assert text.count(f"38;2;{red};{green};{blue}m") >= 2, job


def test_each_line_stands_for_itself() -> None:
    lines = painted(80)
    assert len(lines) == 24
    assert not [
        line
        for line in lines
        if line.count("\x1b[") and not line.rstrip().endswith("\x1b[0m") and "\x1b[0m" not in line
    ]


def test_without_colours_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in "\n".join(painted(80, colour=None)), "a file has no terminal's abilities"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;" not in "\n".join(painted(80, colour=None))


def test_an_encoding_without_the_signs_gets_others() -> None:
    assert glyphs_for("utf-8") is UNICODE
    assert glyphs_for("ascii") is glyphs_for("latin-1") is glyphs_for("no-such-encoding") is ASCII
    assert "\n".join(painted(80, encoding="ascii")).isascii()


def test_the_clock_goes_on_between_pictures() -> None:
    now, later = LOOKS["busy-80x24-last"].lines(), LOOKS["busy-80x24-later"].lines()
    assert "08:05:05" in now[0] and "08:05:07" in later[0]
    assert any("11.4s" in line for line in later), "held 9.4 s two seconds ago"
