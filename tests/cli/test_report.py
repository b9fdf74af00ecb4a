"""`slicelock report` on a live pool, and its tables."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from slicelock.cli import report_tables
from slicelock.cli.failures import ExitCode
from slicelock.history.report import report
from tests.cli.conftest import Call
from tests.support.history import START_S, Story
from tests.support.world import World


def drawn(story: Story, width: int = 200, **facts: int) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(report_tables.whole(report(story.history(), **facts)))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_report_as_tables() -> None:
    story = Story().at(0).switching("a", 1).at(2).ready("a", 1, bytes=3_000_000_000, busy=50)
    story.held("a", 1, waited=2, phase="train").at(4).queued("b", 1).at(12).ended(
        "a", 1, held=10, phase="train"
    )
    story.held("b", 1, waited=8).at(20).ended("b", 1, held=8, outcome="expired")
    story.held("a", 2, phase="train").at(25).ended("a", 2, held=5, phase="train")
    text = drawn(story)
    assert "Sharing saved" in text and "one after the other" in text
    assert "1 in 2.0 s, 3 GB" in text
    assert "1 expired" in text
    assert "50 %" in text and "train 60%" in text
    assert "switching 2.0 s" in text
    assert "held by a 8.0 s" in text


def test_sharing_that_cost_more_than_it_gained() -> None:
    story = Story().at(0).turn("a", 1, held=1)
    story.at(1).queued("b", 1).tell("blocked", slice="s", node="n", kind="silent", reason="n is silent")
    story.at(9).tell("healed", slice="s", node="n").held("b", 1, waited=8).at(10).ended("b", 1, held=1)
    assert "Sharing cost" in drawn(story)


def test_missing_events_are_said() -> None:
    story = Story().at(0).turn("a", 1, held=1)
    assert "missing" not in drawn(story)
    assert "missing" not in drawn(story, since_ms=5)
    story.tell("gap", reason="trimmed")
    assert "Events of this time are missing" in drawn(story, since_ms=5)


def test_nothing_has_happened_is_said() -> None:
    assert "Nothing has happened" in drawn(Story())


def test_without_a_job_in_the_window_it_says_what_to_do() -> None:
    story = Story().at(0).turn("a", 1, held=1)
    text = drawn(story, since_ms=round((START_S + 60) * 1000), until_ms=round((START_S + 90) * 1000))
    assert "No job has asked for a slice in this time" in text and "--since" in text
    assert ", 0 events" in text and "WAITED" not in text


def test_only_events_of_the_window_are_counted() -> None:
    story = Story().at(0).turn("a", 1, held=1).at(30).turn("a", 2, held=1)
    assert f", {len(story.events)} events" in drawn(story)
    assert f", {len(story.events) // 2} events" in drawn(story, since_ms=round((START_S + 10) * 1000))


def test_on_a_narrow_terminal_no_name_is_broken() -> None:
    story = Story("accelerators").at(0).turn("grpo-math", 1, held=100).at(200).queued("rlhf-code", 1)
    story.at(230).held("rlhf-code", 1, waited=30).at(400).ended("rlhf-code", 1, held=170)
    text = drawn(story, width=80)
    assert "25% of accelerators" in text and max(map(len, text.splitlines())) <= 80
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("grpo", "rlhf"))] == (
        ["grpo-math", "rlhf-code"] * 2 + ["rlhf-code"]
    )


@pytest.mark.usefixtures("slicelock_env")
class TestTheCommand:
    def test_of_a_live_pool(self, call: Call, world: World) -> None:
        world.declare("a", "n1", "n2")
        world.serve()
        world.member("r1").hold("a", phase="train")
        told = json.loads(call("report", "--json").out)
        [job], [slice_] = told["jobs"], told["slices"]
        assert (job["job"], job["turns"], slice_["devices"]) == ("job-r1", 1, 2)
        assert told["begin_ms"] <= told["end_ms"]
        assert "job-r1" in call("report").out

    def test_of_an_empty_pool(self, call: Call) -> None:
        assert "Nothing has happened" in call("report").out
        assert json.loads(call("report", "--json").out)["jobs"] == []

    def test_since(self, call: Call, world: World) -> None:
        world.declare("a")
        assert json.loads(call("report", "--since", "5m", "--json").out)["complete"] is True
        assert call("report", "--since", "soon").code == ExitCode.USAGE
