"""What the mode `observe` promises and what the report tells of a real shared run agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock.history import History
from slicelock.history.report import report
from slicelock.settings import StoreSettings
from slicelock.store import EventReader
from tests.support.sim_stage import ROOT, Stage

pytestmark = pytest.mark.one_server

TOLERANCE = 0.12
STEPS = 8


@pytest.fixture
def stage(slicelock_env: dict[str, str], tmp_path: Path) -> Iterator[Stage]:
    made = Stage(slicelock_env, tmp_path)
    made.start_agent()
    yield made
    made.close()


def start(env: dict[str, str], compute_s: float, grade_s: float, **facts: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.support.like_job", str(STEPS), str(compute_s), str(grade_s)]
    variables = {f"SLICELOCK_{name.upper()}": value for name, value in facts.items()}
    return subprocess.Popen(
        words, cwd=ROOT, env={**os.environ, **env, **variables}, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    return said


@pytest.mark.parametrize(("compute_s", "grade_s"), [(0.2, 0.3), (0.4, 0.15)])
def test_what_was_promised_was_saved(stage: Stage, compute_s: float, grade_s: float) -> None:
    promised = finished(start(stage.env, compute_s, grade_s, mode="observe"))
    [percent] = re.findall(r"(\d+)% saved", promised)
    jobs = [start(stage.env, compute_s, grade_s, job=job, run=f"{job}-1") for job in ("a", "b")]
    for job in jobs:
        finished(job)
    settings = StoreSettings.load(
        redis_url=stage.env["SLICELOCK_REDIS_URL"], pool=stage.env["SLICELOCK_POOL"]
    )
    with EventReader(settings, since_ms=0) as reader:
        figures = report(History(reader.read_all()))
    assert [one.turns for one in figures.jobs] == [STEPS, STEPS]
    assert abs(figures.saved_share - int(percent) / 100) < TOLERANCE, (percent, figures.as_json())
    for one in figures.jobs:
        assert abs(one.like_it_saved_share - int(percent) / 100) < TOLERANCE
    [slice_] = figures.slices
    assert slice_.idle_waiting.get("unexplained", 0.0) < 0.02 * figures.window.length_ms / 1000
