"""What is told of a slice, whether in the table or in its details."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from slicelock.picture import RequestView, SliceView
from slicelock.tui.model import View, state_of
from slicelock.tui.panels.pen import Pen
from slicelock.words import duration

RUN = re.compile(r" \(run [^)]*\)")  # the job's name tells enough
UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
LONG, TOO_LONG = 1.5, 3.0  # times the usual length


@dataclass(frozen=True, slots=True)
class Moving:
    """How far a node is with a switch. `total` is 0 where it is not known."""

    node: str
    doing: str
    run: str = ""
    moved: int = 0
    total: int = 0
    seconds: float = 0.0

    @property
    def gb_per_s(self) -> float:
        """10⁹ bytes a second."""
        return self.moved / self.seconds / 1e9 if self.seconds else 0.0


def moving(view: View, one: SliceView) -> Iterator[Moving]:
    """What the nodes of a slice are doing."""
    for node in view.picture.nodes if view.picture else ():
        report = node.reports.get(one.name) or {}
        if node.name not in one.nodes:
            continue
        if progress := report.get("progress"):
            yield _moving(node.name, progress)
        elif doing := str(report.get("doing") or ""):
            step, _, run = doing.partition(" ")
            yield Moving(node.name, step, run)


def _moving(node: str, facts: Mapping[str, Any]) -> Moving:
    moved, total = int(facts.get("moved") or 0), int(facts.get("bytes") or 0)
    step, run = str(facts.get("step", "")), str(facts.get("run", ""))
    return Moving(node, step, run, moved, total, float(facts.get("seconds") or 0))


def memory(used: int, total: int) -> str:
    """What is in use of a device's memory: `96.1 of 141 GiB`."""
    size, unit = next(((size, unit) for size, unit in UNITS if total >= size), UNITS[-1])
    return f"{used / size:.{1 if total < 1000 * size else 0}f} of {total / size:.0f} {unit}"


def held_ms(request: RequestView, age_ms: int) -> int:
    """For how long a turn has lasted."""
    return request.held_ms + age_ms


def usual(view: View, one: SliceView) -> float | None:
    """The usual length of the holder's turns."""
    who = one.holder
    return view.tracks.usual_ms(one.name, who.job, who.phase) if who else None


def length_style(held: float, expected: float | None) -> str:
    """How a turn's length stands out."""
    if expected is None or held < LONG * expected:
        return ""
    return "bold red" if held >= TOO_LONG * expected else "yellow"


def owner(one: SliceView, pen: Pen, *, bold: bool = False) -> Text:
    """Who has the slice, or is about to: job and phase."""
    who = one.holder
    if who is None:
        return Text(pen.glyphs.dash, style="dim")
    return Text.assemble(pen.job(who.job, bold=bold), f" {who.phase}" if who.phase else "")


def state(one: SliceView, pen: Pen) -> Text:
    """A slice's state with its sign; that of a turn has its job's colour."""
    made = pen.state(state_of(one))
    if one.holder and made.plain.endswith("held"):
        made.stylize(pen.job_style(one.holder.job), 0, 1)
    if one.draining and not made.plain.endswith("draining"):
        made.append(f" {pen.glyphs.draining}", style="yellow")
    return made


def lease(request: RequestView, age_ms: int) -> Text:
    """What is left of a lease."""
    left = request.lease_left_ms - age_ms
    return Text(short(max(left, 0)), style="bold red" if left < 5_000 else "dim")


def short(ms: float) -> str:
    """A time in five columns: `850ms`, `12.3s`, `4m05s`, `3h20m`."""
    return duration(ms).replace(" ", "")


def reason(request: RequestView, place: int, one: SliceView) -> str:
    """Why a request waits. The first of a queue waits for the slice; others also for those before them."""
    missing = request.members - request.joined
    if request.state == "gathering":
        return f"members missing: {request.joined} of {request.members} have asked"
    told = RUN.sub("", request.reason)
    told = told.replace(f"{one.name} is held by", "held by").replace(
        f"{one.name} is switching by", "switching to"
    )
    why = told or ("its turn comes" if place == 0 and not missing else "")
    if place and one.holder and one.holder.job in why:
        return f"behind {place}; {why}"
    return why or f"behind {place}"
