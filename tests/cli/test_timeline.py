"""`slicelock timeline`: the file that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call
from tests.support.world import World

pytestmark = pytest.mark.usefixtures("slicelock_env")


@pytest.fixture(autouse=True)
def some_history(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    world.member("r1").hold("a", phase="train")


def test_a_page(call: Call, tmp_path: Path) -> None:
    ended = call("timeline", "--out", str(tmp_path / "t.html"))
    assert ended.code == ExitCode.DONE and ended.out == ""
    assert ended.complaint == f"Wrote {tmp_path / 't.html'} (5 events)."
    text = (tmp_path / "t.html").read_text()
    assert text.startswith("<!doctype html>") and "job-r1" in text
    assert [one.name for one in tmp_path.iterdir()] == ["t.html"]


def test_for_perfetto(call: Call, tmp_path: Path) -> None:
    call("timeline", "-o", str(tmp_path / "t.json"), "--format", "perfetto", "--since", "1h")
    told = json.loads((tmp_path / "t.json").read_text())
    assert any(one["name"] == "train" for one in told["traceEvents"])


def test_a_file_that_is_there_is_replaced(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.html"
    path.write_text("old")
    call("timeline", "--out", str(path))
    assert "old" not in path.read_text()[:100]


def test_a_file_that_cannot_be_written(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "t.html"
    ended = call("timeline", "--out", str(path))
    assert ended.code == ExitCode.OTHER
    assert "was not written: No such file or directory" in ended.complaint and "--out" in ended.complaint
    (tmp_path / "folder").mkdir()
    assert "was not written" in call("timeline", "--out", str(tmp_path / "folder")).complaint
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
