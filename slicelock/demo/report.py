"""What the demo has shown: as one JSON object, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slicelock.demo.plays import DIGITS, Play
from slicelock.demo.rounds import Round
from slicelock.demo.stage import BUSY_SHARE, Workload

NOISE = "This machine was busy with other things: all jobs together cannot be faster than the slowest alone."


@dataclass(frozen=True, slots=True)
class Report:
    """The rounds' results, compared."""

    work: Workload
    solo: Sequence[Round]
    shared: Round
    killed: Round
    play: Play = DIGITS

    @property
    def serial_wall_s(self) -> float:
        return sum(one.wall_s for one in self.solo)

    @property
    def serial_duty(self) -> float:
        """The share of the time in series in which the accelerator was busy."""
        return sum(one.duty * one.wall_s for one in self.solo) / self.serial_wall_s

    @property
    def definitions(self) -> str:
        """What the figures mean."""
        return (
            f"{self.play.definitions} The grader takes {self.work.grade_s:.2f} s for each step: calibrated "
            f"for a job that is busy {BUSY_SHARE:.0%} of its time alone; measured: {self.serial_duty:.0%}."
        )

    @property
    def saved(self) -> float:
        """The share of the time in series that taking turns saves."""
        return 1 - self.shared.wall_s / self.serial_wall_s

    @property
    def identical(self) -> bool:
        """Whether every job that finished has the same weights and optimizer state as in its run alone."""
        alone = {job.name: job.digest for one in self.solo for job in one.jobs}
        finished = [job for one in (self.shared, self.killed) for job in one.jobs if not job.killed_ns]
        return all(job.digest == alone[job.name] != "" for job in finished)

    @property
    def violations(self) -> list[str]:
        """What the device's record holds against the rules; nothing, if all is well."""
        return [line for one in (*self.solo, self.shared, self.killed) for line in one.record.violations()]

    def as_json(self) -> dict[str, Any]:
        """Times in seconds unless named otherwise; shares from 0 to 1."""
        return {
            "device": self.play.where,
            "solo": [
                {
                    "job": job.name,
                    "wall_s": _s(one.wall_s),
                    "duty": _s(one.duty),
                    "accuracy": _s(job.accuracy),
                }
                for one in self.solo
                for job in one.jobs
            ],
            "shared": {
                "wall_s": _s(self.shared.wall_s),
                "duty": _s(self.shared.duty),
                "turns": len(self.shared.record.admissions),
                "switches": self.shared.switches,
                "bytes_moved": self.shared.bytes_moved,
                "handoff_ms_p50": _s(median(self.shared.handovers_ms() or [0.0])),
                "accuracy": {job.name: _s(job.accuracy) for job in self.shared.jobs},
            },
            "kill_to_next_turn_s": _s(self.killed.after_kill_s()),
            "serial_wall_s": _s(self.serial_wall_s),
            "saved": _s(self.saved),
            "identical": self.identical,
            "violations": self.violations,
            "steps": self.work.steps,
            "grade_s": _s(self.work.grade_s),
            "definitions": self.definitions,
        }

    def as_text(self) -> RenderableType:
        """For people: what the figures mean, a table, and a sentence for each thing to know."""
        return Group(
            _small(self.definitions),
            Text(),
            self._table(),
            Text(),
            *(Text(line) for line in self._sentences()),
        )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
        for heading in ("", "time", "busy", "accuracy"):
            table.add_column(heading, justify="left" if not heading else "right")
        for one in self.solo:
            table.add_row(one.title, *_row(one))
        table.add_row("in series", f"{self.serial_wall_s:.1f} s", f"{self.serial_duty:.0%}", "")
        table.add_row(self.shared.title, *_row(self.shared), style="bold")
        return table

    def _sentences(self) -> list[str]:
        facts = self.as_json()
        shared, victim = facts["shared"], next(job for job in self.killed.jobs if job.killed_ns)
        others = "the other" if len(self.killed.jobs) == 2 else "another"
        return [
            f"Taking turns saved {self.saved:.0%} of the time.",
            *([NOISE] if self.shared.wall_s < max(one.wall_s for one in self.solo) else []),
            f"{shared['turns']} turns, {shared['switches']} switches, "
            f"{shared['bytes_moved'] / 1e6:.0f} MB moved; "
            f"median hand-over {shared['handoff_ms_p50']:.0f} ms.",
            f"{victim.name} was killed (-9) in the middle of its turn: {others} had the accelerator "
            f"{facts['kill_to_next_turn_s']:.2f} s later.",
            f"Weights and optimizer state are {'' if self.identical else 'NOT '}bit-identical to those of "
            "the runs alone.",
            *(f"The device's record shows what must never happen: {line}." for line in self.violations),
        ]


def _s(value: float) -> float:
    return round(value, 4)


def _row(one: Round) -> tuple[str, str, str]:
    accuracy = "  ".join(f"{job.accuracy:.2f}" for job in one.jobs)
    return f"{one.wall_s:.1f} s", f"{one.duty:.0%}", accuracy


def _small(text: str) -> Text:
    return Text(text, style="dim")
