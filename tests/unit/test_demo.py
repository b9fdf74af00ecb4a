"""The demo's parts that need no processes: events, comparisons, the report, the picture, signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from pydantic import SecretStr
from rich.console import Console, RenderableType

from slicelock.demo import plays
from slicelock.demo.interrupts import held_back
from slicelock.demo.jobs import JobFacts
from slicelock.demo.play import run
from slicelock.demo.plays import DIGITS, Play, adder, chosen
from slicelock.demo.report import Report
from slicelock.demo.rounds import Round
from slicelock.demo.stage import Stage, Workload, clean_environment, work_for
from slicelock.demo.told import ToldRecord
from slicelock.demo.view import CELL_NS, STRIP, rows, strip, view_for
from slicelock.errors import ConfigurationError
from slicelock.events import Event
from slicelock.settings import StoreSettings
from slicelock.sim.record import Admission, Move, Record, Stray, Use

S = 1_000_000_000


def job(name: str = "a", digest: str = "x", end: int = 10, killed: int = 0) -> JobFacts:
    return JobFacts(
        name, f"{name}-run", 1, (), doing="end", step=4, steps=4, accuracy=0.9, digest=digest,
        start_ns=1 * S, end_ns=end * S, waits=[1 * S], killed_ns=killed * S,
    )  # fmt: skip


def use(name: str, fence: int, start: float, end: float | None) -> Use:
    return Use(f"{name}-run", fence, 1, int(start * S), None if end is None else int(end * S))


def solo(name: str = "a") -> Round:
    return Round(f"{name} alone", [job(name, end=11)], Record(uses=(use(name, 1, 2, 6),)))


def shared(*jobs: JobFacts) -> Round:
    record = Record(
        uses=(use("a", 1, 2, 6), use("b", 2, 6.5, 8), use("a", 3, 9, 12)),
        admissions=(Admission("a-run", 1, 2), Admission("b-run", 2, 6), Admission("a-run", 3, 9)),
        moves=(Move("save", "a-run", 100, 6, 6), Move("restore", "a-run", 100, 8, 9)),
    )
    return Round("2 jobs taking turns", jobs or (job(end=12), job("b", end=13)), record)


def killed() -> Round:
    record = Record(uses=(use("a", 1, 2, None), use("b", 2, 5.25, 8)))
    return Round("one killed", (job(killed=5, end=0), job("b", end=9)), record)


def report(**changes: Round) -> Report:
    parts = {"shared": shared(), "killed": killed(), **changes}
    return Report(Workload(4, 0.1, 0.15), (solo(), solo("b")), **parts)


def text(renderable: RenderableType, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


# ---------------------------------------------------------------- events


def test_a_jobs_events_say_what_it_does() -> None:
    facts = JobFacts("a", "run", 1, ())
    events: list[dict[str, object]] = [
        {"event": "wait", "t_ns": 5, "step": 0, "steps": 9},
        {"event": "generate", "t_ns": 7, "step": 1},
        {"event": "generated", "t_ns": 10, "step": 1},
        {"event": "reward", "t_ns": 10, "step": 1},
        {"event": "wait", "t_ns": 20, "step": 1},
        {"event": "train", "t_ns": 22, "step": 1},
        {"event": "step", "t_ns": 30, "step": 1, "reward": 0.2, "accuracy": 0.5},
        {"event": "end", "t_ns": 40, "accuracy": 0.6, "digest": "d"},
    ]
    for event in events:
        facts.take(event)
    assert (facts.start_ns, facts.end_ns, facts.waits) == (5, 40, [5, 20])
    assert (facts.spent["generate"], facts.spent["reward"], facts.spent["train"]) == ([3], [10], [8])
    assert (facts.doing, facts.step, facts.steps, facts.accuracy, facts.digest) == ("end", 1, 9, 0.6, "d")


@pytest.mark.parametrize("play", [DIGITS, adder("0", "a GPU")])
def test_the_example_is_found(play: Play) -> None:
    assert play.path.is_file()


def test_pytorch_is_played_where_it_finds_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plays, "DRIVER", tmp_path / "nowhere")
    assert chosen() is DIGITS
    monkeypatch.setattr(plays, "DRIVER", tmp_path)
    monkeypatch.setattr(plays, "_is_missing", lambda name: False)
    monkeypatch.setattr(plays, "PROBE", "print('[]')")
    assert chosen() is DIGITS
    monkeypatch.setattr(plays, "PROBE", """print('chatter'); print('["NVIDIA H200", "12-ab"]')""")
    assert (chosen().where, chosen().device) == ("NVIDIA H200", "GPU-12-ab")


def test_what_jobs_and_redis_tell_makes_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    record = ToldRecord(StoreSettings(redis_url=SecretStr("redis://nowhere")))
    told = {"run": "run", "fence": "7", "bytes": "100", "seconds": "0.5"}
    events = [Event("1-0", "ready", 5000, told), Event("2-0", "held", 5001, {})]
    monkeypatch.setattr(record, "_events", type("Events", (), {"read_all": lambda self: iter(events)})())
    monkeypatch.setattr(record, "_offset_ns", 0)
    facts = JobFacts("a", "run", 1, ())
    for kind, at in (("wait", 4), ("generate", 6), ("reward", 7), ("train", 8)):
        facts.take({"event": kind, "t_ns": at * S})
    record.jobs.append(facts)
    seen = record.read()
    assert seen.uses == (Use("run", 7, 0, 6 * S, 7 * S), Use("run", 7, 0, 8 * S, None))
    assert seen.admissions == (Admission("run", 7, 5 * S),)
    assert seen.moves == (Move("switch", "run", 100, 4_500_000_000, 5 * S),)


# ---------------------------------------------------------------- comparing


def test_the_report_has_what_was_promised() -> None:
    facts = report().as_json()
    assert facts["solo"][0] == {"job": "a", "wall_s": 10, "duty": 0.4, "accuracy": 0.9}
    assert facts["serial_wall_s"] == 20
    assert facts["saved"] == pytest.approx(1 - 12 / 20)
    assert facts["shared"]["wall_s"] == 12
    assert facts["shared"]["duty"] == pytest.approx(8.5 / 12, abs=1e-4)
    assert (facts["shared"]["turns"], facts["shared"]["switches"]) == (3, 2)
    assert facts["shared"]["bytes_moved"] == 200
    assert facts["shared"]["handoff_ms_p50"] == pytest.approx(750)
    assert facts["kill_to_next_turn_s"] == 0.25
    assert facts["identical"] is True
    assert facts["violations"] == []


def test_a_hand_over_begins_when_the_slice_is_free_and_asked_for() -> None:
    late = job("b", end=13)
    late.waits.append(int(6.4 * S))
    assert shared(job(end=12), late).handovers_ms() == pytest.approx([100, 1000])


@pytest.mark.parametrize("where", ["shared", "killed"])
def test_other_weights_are_not_identical(where: str) -> None:
    if where == "shared":
        changed = report(shared=shared(job(end=12), job("b", digest="y", end=13)))
    else:
        changed = report(killed=Round("", (job(killed=5, end=0), job("b", "y")), killed().record))
    assert changed.identical is False
    assert "NOT bit-identical" in text(changed.as_text())


def test_a_job_that_did_not_finish_is_not_identical() -> None:
    assert report(shared=shared(job(end=12), job("b", digest="", end=13))).identical is False


def test_a_stray_is_reported() -> None:
    one = Round(
        "", shared().jobs, Record(uses=shared().record.uses, strays=(Stray("a", 1, 1, 0, 1, "late"),))
    )
    assert report(shared=one).violations
    assert "never happen" in text(report(shared=one).as_text())


def test_the_report_in_words() -> None:
    lines = text(report().as_text()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].endswith("bit-identical to those of the runs alone.")
    said = " ".join(" ".join(lines).split())
    assert "Taking turns saved 40% of the time." in said
    assert "a was killed (-9) in the middle of its turn: the other had the accelerator 0.25 s later." in said


@pytest.mark.parametrize("jobs", [2, 3, 8])
@pytest.mark.parametrize("busy", [0.02, 0.13, 0.4])
def test_the_work_fits_the_time(jobs: int, busy: float) -> None:
    work = work_for(busy, 0.005, jobs)
    assert 12 <= work.steps <= 24
    assert busy / (busy + 0.005 + work.grade_s) == pytest.approx(0.43)
    assert work.options() == ("--slice=demo", f"--steps={work.steps}", f"--grade-seconds={work.grade_s:.4f}")


# ---------------------------------------------------------------- what one sees


def test_the_strip_shows_the_last_seconds() -> None:
    now = 100 * CELL_NS
    uses = [Use("a", 1, 1, 90 * CELL_NS, 93 * CELL_NS), Use("a", 2, 1, 98 * CELL_NS, None)]
    assert strip(uses, now) == "·" * (STRIP - 11) + "███" + "·" * 5 + "██" + "·"
    assert strip(uses, now, killed_ns=99 * CELL_NS).endswith("·█··")
    assert strip([], now) == "·" * STRIP
    assert strip([Use("a", 1, 1, 0, 5)], now) == "·" * STRIP


@pytest.mark.parametrize("jobs", [2, 8])
def test_the_picture_fits_a_small_terminal(jobs: int) -> None:
    facts: Sequence[JobFacts] = [job(f"digits-{number}") for number in range(1, jobs + 1)]
    picture = text(rows(facts, [Use("digits-1-run", 1, 1, 0, None)], 40 * CELL_NS)).splitlines()
    assert len(picture) == jobs
    assert max(map(len, picture)) <= 80
    assert picture[0].startswith("● digits-1")
    assert picture[1].startswith("○ digits-2")


def test_without_a_terminal_there_are_plain_lines() -> None:
    console = Console(file=StringIO(), width=200)
    with view_for(console, quiet=False) as view:
        for _ in range(3):
            view.show("a alone", [job()])
        view.show("one killed", [job("b", killed=5)])
        view.keep(solo())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        "a alone …",
        "  a  step 4/4  accuracy 0.90",
        "one killed …",
        "  b  step 4/4  accuracy 0.90",
        "  b  killed (-9)",
        "a alone: 10.0 s, busy 40%, accuracy 90%",
    ]


def test_many_rounds_do_not_outgrow_the_terminal() -> None:
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    with view_for(console, quiet=False) as view:
        for _ in range(20):
            view.keep(solo())
        view._shown = 0  # type: ignore[attr-defined]
        view.show("8 jobs taking turns", [job(f"digits-{number}") for number in range(8)])
        frame = console.file.getvalue()  # type: ignore[attr-defined]
    assert len(frame.splitlines()) <= 24
    assert "the last two seconds" in frame


def test_on_a_terminal_it_is_a_picture() -> None:
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True)
    with view_for(console, quiet=False) as view:
        view.keep(solo())
        view.keep(killed())
        view._shown = 0  # type: ignore[attr-defined]
        view.show("2 jobs taking turns", [job(), job("b")])
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "slicelock demo" in said
    assert "✓ a alone" in said
    assert "next turn 0.25 s after the kill" in said


def test_with_json_nothing_is_shown() -> None:
    console = Console(file=StringIO(), force_terminal=True)
    with view_for(console, quiet=True) as view:
        view.show("a alone", [job()])
        assert view.keep(shared()).switches == 2
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


# ---------------------------------------------------------------- signals and settings


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)],
    ids=["int", "term"],
)
def test_a_signal_waits_for_a_good_moment(number: signal.Signals, error: type[BaseException]) -> None:
    before = signal.getsignal(number)
    with held_back() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), number)
        with pytest.raises(error):
            interrupts.check()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("jobs", [-1, 0, 1, 9])
def test_a_number_of_jobs_that_makes_no_sense(jobs: int) -> None:
    with pytest.raises(ConfigurationError, match=f"2 to 8 jobs. You asked for {jobs}"):
        run(jobs)


def test_the_users_own_settings_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLICELOCK_POOL", "SLURM_JOB_ID", "RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "1")
    assert not {"SLICELOCK_POOL", "SLURM_JOB_ID", "RANK", "TORCHELASTIC_RUN_ID"} & set(clean_environment())


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"needs no_such_package.*slicelock\[demo\]"):
        Stage(replace(DIGITS, needs=("numpy", "no_such_package"))).__enter__()
