"""A slice's last minutes as blocks."""

from __future__ import annotations

from slicelock.history import Block, strip
from tests.support.history import START_S, Story

BEGIN = round(START_S * 1000)


def shown(story: Story, seconds: float, width: int, begin: float = 0.0) -> list[Block]:
    first = BEGIN + round(begin * 1000)
    return strip(story.history().slices["s"], first, first + round(seconds * 1000), width)


def letters(blocks: list[Block]) -> str:
    return "".join(one.job or {"free": ".", "blocked": "!", "settling": "~"}[one.what] for one in blocks)


def test_alternation_is_visible() -> None:
    story = Story()
    for number in range(4):
        story.at(number * 10 + 1).turn("ab"[number % 2], number + 1, held=8)
    assert letters(shown(story, 40, 8)) == "aabbaabb"
    assert letters(shown(story, 40, 4)) == "abab"
    assert letters(shown(story, 20, 4, begin=10)) == "bbaa"


def test_what_goes_on_lasts_until_the_end() -> None:
    story = Story().at(2).held("a", 1, phase="train")
    assert letters(shown(story, 10, 5)) == ".aaaa"
    assert shown(story, 10, 5)[4] == Block("held", "a", "train", 1.0)


def test_switches_and_conditions() -> None:
    story = Story().at(0).tell("blocked", slice="s", node="n", kind="silent", reason="x")
    story.at(4).tell("healed", slice="s", node="n").switching("a", 1).at(8).held("a", 1).at(10).ended(
        "a", 1, 2
    )
    blocks = shown(story, 12, 6)
    assert [one.what for one in blocks] == ["blocked", "blocked", "switching", "switching", "held", "free"]


def test_a_block_shows_what_it_did_most() -> None:
    story = Story().at(0).turn("a", 1, held=3).turn("b", 1, held=6)
    assert letters(shown(story, 10, 1)) == "b"
    assert shown(story, 10, 1)[0].share == 0.6
    assert letters(shown(story, 20, 1)) == "."


def test_a_turn_wins_over_a_condition() -> None:
    story = Story().at(0).tell("epoch", epoch=2).held("a", 1).tell("epoch", epoch=3)
    assert letters(shown(story, 5, 2)) == "aa"


def test_nothing_in_sight() -> None:
    story = Story().at(0).turn("a", 1, held=3)
    assert letters(shown(story, 10, 3, begin=60)) == "..."
    assert shown(story, 10, 0) == []
