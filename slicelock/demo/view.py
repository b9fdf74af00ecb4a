"""What one sees while the demo plays: a picture on a terminal, lines elsewhere, nothing with `--json`."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slicelock.demo.jobs import JobFacts
from slicelock.demo.rounds import Round
from slicelock.demo.stage import Recorded, Workload
from slicelock.sim.record import Use

REFRESH_S = 0.1
FRAME = 8  # lines of the picture beside those of jobs and past rounds
CELL_NS = 50_000_000  # of the strip that shows who has used the device: 0.05 s
STRIP = 36  # cells; with it a row fits into 80 columns
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta")
DOING = {
    "starting": "starts",
    "wait": "waits",
    "generate": "generates",
    "generated": "yields",
    "train": "trains",
    "step": "trains",
    "reward": "is graded",
    "end": "done",
}
LEGEND = Text("█ computes on the accelerator (the last two seconds)", style="dim")


class View(Protocol):
    """Gets to know what happens."""

    def begin(self, record: Recorded, work: Workload) -> None: ...
    def show(self, title: str, jobs: Sequence[JobFacts]) -> None: ...
    def keep(self, one: Round) -> Round: ...


@contextmanager
def view_for(console: Console, where: str = "", *, quiet: bool) -> Generator[View]:
    """The view that fits where the output goes."""
    if quiet:
        yield Silent()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield Picture(live, where)
    else:
        yield Lines(console)


class Silent:
    """Shows nothing."""

    def begin(self, record: Recorded, work: Workload) -> None:
        pass

    def show(self, title: str, jobs: Sequence[JobFacts]) -> None:
        pass

    def keep(self, one: Round) -> Round:
        return one


class Lines:
    """A line for each round's beginning and end, and for each quarter of a job's steps."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._title = ""
        self._quarters: dict[str, int] = {}

    def begin(self, record: Recorded, work: Workload) -> None:
        self._console.print(
            f"a step takes {work.busy_s:.2f} s on the accelerator and {work.grade_s:.2f} s in the grader; "
            f"{work.steps} steps"
        )

    def show(self, title: str, jobs: Sequence[JobFacts]) -> None:
        if title != self._title:
            self._title = title
            self._console.print(f"{title} …")
        for job in jobs:
            self._quarter(job)

    def _quarter(self, job: JobFacts) -> None:
        quarter = 4 * job.step // job.steps if job.steps and job.mode == "on" else 0
        if quarter > self._quarters.get(job.run, 0):
            self._quarters[job.run] = quarter
            self._console.print(f"  {job.name}  step {job.step}/{job.steps}  accuracy {job.accuracy:.2f}")
        if job.killed_ns and self._quarters.get(job.run) != 9:
            self._quarters[job.run] = 9
            self._console.print(f"  {job.name}  killed (-9)")

    def keep(self, one: Round) -> Round:
        self._console.print(f"{one.title}: {_outcome(one)}")
        return one


class Picture:
    """The rounds so far, who had the accelerator in the last seconds, and how far each job is."""

    def __init__(self, live: Live, where: str) -> None:
        self._live, self._where = live, where
        self._record: Recorded | None = None
        self._done: list[Round] = []
        self._start = self._shown = time.monotonic()

    def begin(self, record: Recorded, work: Workload) -> None:
        self._record = record

    def keep(self, one: Round) -> Round:
        self._done.append(one)
        return one

    def show(self, title: str, jobs: Sequence[JobFacts]) -> None:
        if time.monotonic() - self._shown < REFRESH_S:
            return
        self._shown = time.monotonic()
        uses = self._record.read().uses if self._record else ()
        self._live.update(self._picture(title, jobs, uses), refresh=True)

    def _picture(self, title: str, jobs: Sequence[JobFacts], uses: Sequence[Use]) -> RenderableType:
        seconds = int(self._shown - self._start)
        head = Text.assemble(
            ("slicelock demo", "bold"), f"   {self._where}   {seconds // 60}:{seconds % 60:02}"
        )
        room = max(1, self._live.console.height - len(jobs) - FRAME)
        done = [Text(f"  ✓ {one.title:<24}{_outcome(one)}", style="dim") for one in self._done[-room:]]
        now = time.monotonic_ns()
        now_playing = Text(f"  ▶ {title}", style="bold")
        return Group(head, Text(), *done, now_playing, Text(), rows(jobs, uses, now), Text(), LEGEND)


def rows(jobs: Sequence[JobFacts], uses: Sequence[Use], now_ns: int) -> Table:
    """A row for each job: when it used the accelerator in the last seconds, what it does, how far it is."""
    table = Table.grid(padding=(0, 1))
    for job, colour in zip(jobs, COLOURS, strict=False):
        mine = [use for use in uses if use.run == job.run]
        has_it = bool(mine) and mine[-1].end_ns is None and not job.killed_ns
        table.add_row(
            Text(("● " if has_it else "○ ") + job.name, style=f"bold {colour}" if has_it else colour),
            Text(strip(mine, now_ns, job.killed_ns), style=colour),
            Text("killed" if job.killed_ns else DOING.get(job.doing, job.doing)),
            ProgressBar(total=job.steps or 1, completed=job.step, width=10, complete_style=colour),
            Text(f"{job.accuracy:4.0%}", justify="right"),
        )
    return table


def strip(uses: Sequence[Use], now_ns: int, killed_ns: int = 0) -> str:
    """The last two seconds in cells, filled where the device was used for half of a cell or more."""
    cells = ["·"] * STRIP
    first = now_ns // CELL_NS - STRIP + 1
    for use in reversed(uses):
        end_ns = use.end_ns or killed_ns or now_ns
        if end_ns // CELL_NS < first:
            break
        for cell in range(round(use.start_ns / CELL_NS), round(end_ns / CELL_NS)):
            if 0 <= cell - first < STRIP:
                cells[cell - first] = "█"
    return "".join(cells)


def _outcome(one: Round) -> str:
    if any(job.killed_ns for job in one.jobs):
        return f"next turn {one.after_kill_s():.2f} s after the kill"
    accuracy = ", ".join(f"{job.accuracy:.0%}" for job in one.jobs)
    return f"{one.wall_s:.1f} s, busy {one.duty:.0%}, accuracy {accuracy}"
