"""The demo with the machine to itself: taking turns saves time."""

from __future__ import annotations

from pathlib import Path

from tests.support.demo import Demo, keeps_its_promises


def test_the_demo_shows_what_it_promises(tmp_path: Path) -> None:
    """That of three jobs, and beside other tests, is one of the installed package."""
    with Demo(tmp_path) as demo:
        report = demo.report()
    keeps_its_promises(report, jobs=2)
    assert report["shared"]["duty"] > max(one["duty"] for one in report["solo"])
    assert 0 < report["saved"] < 1
