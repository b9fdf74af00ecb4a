"""Draws a report: was sharing worth it, by job and by slice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slicelock.cli.render import Fitted, cut_id, table
from slicelock.history.jobs import JobFigures
from slicelock.history.report import Report
from slicelock.history.slices import LongWait, SliceFigures
from slicelock.words import count, duration, gb

ROOMY = 140  # columns from which a job is one row
SHOWN_CAUSES = 3
SHOWN_WAITS = 3


def whole(seen: Report) -> RenderableType:
    """Everything, drawn for the width that it gets."""
    if not seen.slices:
        return Text("Nothing has happened in this pool yet. Come back when jobs have had turns.")
    return Fitted(partial(_whole, seen))


def _whole(seen: Report, width: int) -> RenderableType:
    wide = width >= ROOMY
    parts: list[RenderableType] = [window(seen), verdict(seen), ""]
    if seen.jobs:
        parts += [jobs(seen.jobs), ""] if wide else [asked(seen.jobs), "", worth(seen.jobs), ""]
    parts.append(slices(seen.slices))
    waits = [one for figures in seen.slices for one in figures.longest_waits]
    if waits:
        parts += ["", longest(waits, 0 if wide else width // 4)]
    return Group(*parts)


def window(seen: Report) -> Text:
    """What time the report is about."""
    begin, end = (datetime.fromtimestamp(ms / 1000) for ms in (seen.window.begin_ms, seen.window.end_ms))
    text = f"{begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} ({duration(seen.window.length_ms)})"
    made = Text(f"{text}, {count(seen.events, 'event')}", style="dim")
    if not seen.complete:
        made.append("  Events of this time are missing, so the figures are too low.", style="yellow")
    return made


def verdict(seen: Report) -> Text:
    """Whether it was worth it, in a sentence; or what to do where that cannot be said."""
    if not seen.jobs:
        return Text(
            "No job has asked for a slice in this time, so there is nothing to judge. "
            "Look further back with --since, or come back when jobs have had turns.",
            style="bold",
        )
    alone, shared = seen.gpu_hours_alone, seen.gpu_hours_shared
    compared = f"{hours(shared)} GPU-hours instead of {hours(alone)} one after the other"
    if seen.saved_gpu_hours >= 0:
        saved = f"Sharing saved {hours(seen.saved_gpu_hours)} GPU-hours, {seen.saved_share:.0%}"
        return Text(f"{saved}: {compared}.", style="bold green" if seen.saved_share >= 0.005 else "bold")
    return Text(f"Sharing cost {hours(-seen.saved_gpu_hours)} GPU-hours: {compared}.", style="bold red")


ASKED = ("turns", "waited p50", "p95", "max")
WORTH = ("held", "share", "alone", "now", "saved")


def jobs(those: Iterable[JobFigures]) -> Table:
    """One row for each job."""
    made = table("job", *ASKED, "switches", *WORTH)
    for one in those:
        made.add_row(one.job, *_asked(one), _switches_of(one), *_worth(one))
    return made


def asked(those: Iterable[JobFigures]) -> Table:
    """The first of two tables where there is little room: what jobs asked for, and what moving them took."""
    made = table("job", *ASKED, "switches")
    for one in those:
        made.add_row(one.job, *_asked(one), _switches_of(one))
    return made


def worth(those: Iterable[JobFigures]) -> Table:
    """The second: what each job had, and whether that was worth it."""
    made = table("job", *WORTH)
    for one in those:
        made.add_row(one.job, *_worth(one))
    return made


def _asked(one: JobFigures) -> tuple[RenderableType, ...]:
    return turns(one), *(duration(s * 1000) for s in (one.wait_p50_s, one.wait_p95_s, one.wait_max_s))


def _worth(one: JobFigures) -> tuple[RenderableType, ...]:
    return (
        duration(one.held_s * 1000),
        ", ".join(f"{part:.0%} of {name}" for name, part in one.share.items()) or "-",
        duration(one.alone_s * 1000),
        Text(duration(one.now_s * 1000)).append(f" {one.slower:+.0%}", style="dim"),
        saved(one),
    )


def _switches_of(one: JobFigures) -> str:
    return switches(one.switches, one.switch_s, one.bytes)


def turns(one: JobFigures) -> Text:
    """How many, and those that did not end by a yield."""
    made = Text(str(one.turns))
    for outcome, number in one.ended.items():
        if outcome != "yielded":
            made.append(f" {number} {outcome}", style="red")
    return made


def saved(one: JobFigures) -> Text:
    """A job's part in what was saved."""
    style = "green" if one.saved_gpu_hours > 0 else "red" if one.saved_gpu_hours < 0 else ""
    return Text(f"{hours(one.saved_gpu_hours)} h ({one.saved_share:.0%})", style=style)


def switches(number: int, seconds: float, size: int) -> str:
    """How many, how long, and how much was moved."""
    moved = f", {gb(size)}" if size else ""
    return f"{number} in {duration(seconds * 1000)}{moved}" if number else "-"


def slices(those: Iterable[SliceFigures]) -> Table:
    """One row for each slice."""
    made = table("slice", "in use", "phases", "utilisation", "switches", "idle, somebody waiting")
    for one in those:
        made.add_row(
            one.slice,
            f"{one.duty:.0%}",
            shares(one.phases),
            "-" if one.utilisation is None else f"{one.utilisation:.0f} %",
            switches(one.switches, one.switching_s, one.bytes),
            seconds_by(one.idle_waiting),
        )
    return made


def longest(waits: Iterable[LongWait], cut_at: int = 0) -> Table:
    """The longest waits of all slices, and what each was for. Ids are cut to `cut_at`; 0: they are whole."""
    unique = {(one.request, one.asked_ms): one for one in waits}
    made = table("longest waits", "since", "for", "because of")
    for one in sorted(unique.values(), key=lambda one: -one.seconds)[:SHOWN_WAITS]:
        made.add_row(
            f"{one.job} {cut_id(one.request, cut_at)}",
            f"{datetime.fromtimestamp(one.asked_ms / 1000):%H:%M:%S}",
            duration(one.seconds * 1000) + ("" if one.outcome == "held" else f", {one.outcome}"),
            seconds_by(dict(list(one.causes.items())[:SHOWN_CAUSES])),
        )
    return made


def shares(by_name: Mapping[str, float]) -> str:
    """Shares by name."""
    return ", ".join(f"{name} {share:.0%}" for name, share in by_name.items()) or "-"


def seconds_by(lengths: Mapping[str, float]) -> str:
    """Lengths of time by name."""
    return ", ".join(f"{name} {duration(seconds * 1000)}" for name, seconds in lengths.items()) or "-"


def hours(value: float) -> str:
    """Hours with three digits that count."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
