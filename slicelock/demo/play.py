"""Plays the demo from beginning to end."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from slicelock.demo import plays, rounds
from slicelock.demo.interrupts import Interrupts, held_back
from slicelock.demo.jobs import JobFacts
from slicelock.demo.plays import Play
from slicelock.demo.report import Report
from slicelock.demo.stage import Stage
from slicelock.demo.view import View, view_for
from slicelock.errors import ConfigurationError

MOST_JOBS = 8


def run(jobs: int = 2, *, as_json: bool = False, play: Play | None = None) -> bool:
    """Play the demo and print its report; whether all results were bit-identical and the device's record is
    clean. `play`: what is played; by default PyTorch on a GPU where there are both, else digits.

    Shows progress on the terminal, or line by line where there is none; with `as_json` prints one JSON object
    and nothing else. Leaves no process and no file behind, also when it is interrupted (KeyboardInterrupt;
    SystemExit after SIGTERM). SlicelockError, in one line, for whatever keeps it from being played.
    """
    if not 2 <= jobs <= MOST_JOBS:
        raise ConfigurationError(
            f"The demo plays with 2 to {MOST_JOBS} jobs.", advice=f"You asked for {jobs}."
        )
    console = Console(highlight=False, markup=False, emoji=False)
    play = play or plays.chosen()
    with (
        held_back() as interrupts,
        Stage(play) as stage,
        view_for(console, play.where, quiet=as_json) as view,
    ):
        report = _play(stage, [f"{play.job}-{number}" for number in range(1, jobs + 1)], view, interrupts)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        console.print(report.as_text())
    return report.identical and not report.violations


def _play(stage: Stage, names: Sequence[str], view: View, interrupts: Interrupts) -> Report:
    def watch(title: str, jobs: Sequence[JobFacts]) -> None:
        interrupts.check()
        view.show(title, jobs)

    interrupts.check()
    work = rounds.measure(stage, len(names), watch)
    stage.start_agent()
    interrupts.check()
    view.begin(stage.record, work)
    solo = [view.keep(rounds.alone(stage, name, seed, work, watch)) for seed, name in enumerate(names, 1)]
    shared = view.keep(rounds.together(stage, names, work, watch))
    killed = view.keep(rounds.with_a_kill(stage, names, work, watch))
    return Report(work, solo, shared, killed, stage.play)
