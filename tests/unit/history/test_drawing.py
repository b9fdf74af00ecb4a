"""What a page gets to draw, and that a name cannot break out of it."""

from __future__ import annotations

import json
import re
from typing import Any

from slicelock.history import History
from slicelock.history.drawing import drawing
from slicelock.history.page import page
from slicelock.history.report import report
from tests.support.history import START_S, Story


def drawn(story: Story, since_ms: int = 0) -> dict[str, Any]:
    history = story.history()
    return drawing(history, report(history, since_ms=since_ms), "lab")


def rows(columns: dict[str, list[Any]], names: list[str], *texts: str) -> list[dict[str, Any]]:
    """Columns as rows again, with some of them as texts."""
    made = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [{name: names[value] if name in texts else value for name, value in row.items()} for row in made]


def story() -> Story:
    told = Story().at(1).held("a", 1, phase="train").at(2).queued("b", 1)
    told.at(4).ended("a", 1, held=3, phase="train").switching("b", 1)
    steps = '[{"step": "restore", "run": "b-1", "way": "sim", "bytes": 7, "seconds": 0.5}]'
    told.at(5).ready("b", 1, bytes=7, seconds=1, steps=steps).held("b", 1, waited=3)
    return told.tell("blocked", slice="s", node="n", kind="silent", reason="n is silent")


def test_times_are_ms_after_the_beginning() -> None:
    told = drawn(story())
    assert (told["begin_ms"], told["length_ms"]) == (round((START_S + 1) * 1000), 4000)
    [slice_] = told["slices"]
    first, second = rows(slice_["turns"], told["names"], "job", "phase", "request", "outcome")
    assert (first["from"], first["to"], first["job"], first["phase"]) == (0, 3000, "a", "train")
    assert (second["from"], second["to"], second["outcome"]) == (4000, -1, "")


def test_waits_switches_and_conditions() -> None:
    told = drawn(story())
    names = told["names"]
    [_, wait] = rows(told["waits"], names, "job", "slices")
    assert (wait["from"], wait["complete"], wait["granted"], wait["to"]) == (1000, 1000, 3000, 4000)
    assert wait["slices"] == "s"
    [switch] = rows(told["slices"][0]["switches"], names, "left", "job")
    assert (switch["left"], switch["job"], switch["bytes"]) == ("a", "b", 7)
    [[node, moved, seconds, reason, [step]]] = switch["nodes"]
    assert (names[node], moved, seconds, names[reason]) == ("n1", 7, 1.0, "")
    assert [names[place] for place in step[:3]] + step[3:] == ["restore", "b-1", "sim", 7, 0.5]
    [condition] = rows(told["slices"][0]["conditions"], names, "what", "reason")
    assert (condition["what"], condition["reason"], condition["to"]) == ("blocked", "n is silent", -1)


def test_only_what_touches_the_window() -> None:
    told = drawn(story(), since_ms=round((START_S + 4.5) * 1000))
    assert [row["job"] for row in rows(told["slices"][0]["turns"], told["names"], "job")] == ["b"]
    assert told["slices"][0]["switches"]["from"] == [-500]


def test_nothing_has_happened() -> None:
    told = drawing(History(), report(History()), "lab")
    assert told["slices"] == [] and told["waits"]["from"] == []


def test_a_page_is_whole_and_asks_for_nothing() -> None:
    text = page(drawn(story()))
    assert "<!-- put" not in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "http://" not in text and "https://" not in text


def test_a_name_cannot_end_the_data() -> None:
    nasty = "</script><!-- put script --><script>alert(1)</script>"
    history = Story().at(0).held(nasty, 1).history()
    text = page(drawing(history, report(history), nasty))
    assert "alert(1)</script>" not in text
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found and json.loads(found[1])["pool"] == nasty
    assert text.count("</script>") == 2
