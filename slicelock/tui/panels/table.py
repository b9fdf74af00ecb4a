"""The table of slices: a line for each, and its strip below or beside it; what jobs have had, below."""

from __future__ import annotations

from textwrap import wrap

from rich.text import Text

from slicelock.picture import SliceView
from slicelock.tui.model import View
from slicelock.tui.panels import facts, strips
from slicelock.tui.panels.head import window_name
from slicelock.tui.panels.pen import Pen
from slicelock.tui.panels.scene import Scene

STATE, TIME, LEASE, WAIT = 11, 14, 6, 4
NAME = (8, 20)  # the least and the most columns of a name
OWNER = 34
BESIDE = 24  # columns that a strip needs beside its line


class Columns:
    """Where things stand in a line of some width; narrow ones lack some."""

    def __init__(self, view: View, width: int) -> None:
        names = [len(one.name) for one in view.slices_seen()]
        self.name = min(max([NAME[0], *names]), NAME[1] if width >= 100 else 12)
        self.time, self.lease = TIME if width >= 54 else 0, LEASE if width >= 70 else 0
        fixed = sum(one + 1 for one in (self.name, STATE, self.time, self.lease, WAIT) if one)
        rest = width - 3 - fixed
        self.owner = max(0, min(rest, OWNER))
        self.rest = max(0, rest - self.owner - 2)
        self.width = width

    def line(self, parts: tuple[Text | str, ...], pen: Pen) -> Text:
        """The parts in their columns: name, state, owner, time, lease, wait."""
        widths = (self.name, STATE, self.owner, self.time, self.lease, WAIT)
        placed = enumerate(zip(parts, widths, strict=True))
        return Text(" ").join(pen.fit(part, width, right=at >= 3) for at, (part, width) in placed if width)


def table(scene: Scene, width: int, height: int) -> list[Text]:
    """A header and as many slices as there is room for, around the selected one."""
    view = scene.view
    shown, columns = view.slices(), Columns(view, width)
    if not shown:
        return [Text(), *(Text(f"  {line}", style="dim") for line in wrap(_nothing(view), width - 4))]
    tall = _lines_each(len(shown), height)
    room = max(1, (height - 1) // tall)
    chosen = view.chosen()
    at = next(place for place, one in enumerate(shown) if one is chosen)
    first = max(0, min(at - room // 2, len(shown) - room))
    lines = [header(scene, columns, tall)]
    for one in shown[first : first + room]:
        lines += rows(scene, one, columns, tall, label=len(lines) == 1)
    if len(shown) > room:
        lines[0] = scene.pen.fit(lines[0], width - 14)
        lines[0].append(f"{first + 1}-{first + room} of {len(shown)}".rjust(13), style="dim")
    return lines


def _lines_each(slices: int, height: int) -> int:
    """Line and strip, with an empty line where there is room; or one line where there is not."""
    if slices * 2 >= height:
        return 1
    return 3 if slices * 3 + 1 < height else 2


def _nothing(view: View) -> str:
    if view.picture is None:
        return view.failing or f"waiting for {view.place}"
    if view.filter:
        return f"no slice fits the filter {view.filter!r}"
    return f"Pool {view.pool} has no slices. Start an agent with --slice, or: slicelock slice declare NAME"


def header(scene: Scene, columns: Columns, tall: int) -> Text:
    """The names of the columns."""
    names = ("SLICE", "STATE", "OWNER", "HELD / USUAL", "LEASE", "WAIT")
    made = Text("  ").append_text(columns.line(names, scene.pen))
    if tall == 1 and columns.rest >= BESIDE:
        made.append(f"   LAST {window_name(scene.view.window_ms).upper()}")
    made.stylize("dim bold")
    return made


def rows(scene: Scene, one: SliceView, columns: Columns, tall: int, *, label: bool) -> list[Text]:
    """A slice's line, with its strip, and with what that is about where it is the first."""
    view, pen = scene.view, scene.pen
    chosen = view.chosen()
    selected = chosen is not None and one.name == chosen.name
    mark = Text.assemble((pen.glyphs.mark if selected else " ", "bold cyan"), " ")
    line = mark.copy().append_text(row(scene, one, columns, selected))
    if tall == 1 and columns.rest < BESIDE:
        return [line]
    if tall == 1:
        return [line.append("  ").append_text(strips.draw(scene, one.name, columns.rest))]
    about = pen.fit(Text(window_name(view.window_ms) if label else "", style="dim"), columns.name + 1)
    strip = strips.draw(scene, one.name, columns.width - columns.name - 4)
    return [line, Text.assemble(mark, about, strip), *([Text()] if tall > 2 else [])]


def row(scene: Scene, one: SliceView, columns: Columns, selected: bool) -> Text:
    """A slice in one line."""
    pen, who = scene.pen, one.holder
    waiting = max(one.queued, len(scene.view.waiters(one)))
    parts = (
        Text(one.name, style="bold" if selected else ""),
        facts.state(one, pen),
        facts.owner(one, pen, bold=selected),
        time(scene, one),
        facts.lease(who, scene.age_ms) if who and who.state == "held" else "",
        number(waiting, pen),
    )
    return columns.line(parts, pen)


def number(many: int, pen: Pen) -> Text:
    """A number, or that there is none."""
    return Text(str(many), style="bold") if many else Text(pen.glyphs.dash, style="dim")


def time(scene: Scene, one: SliceView) -> Text:
    """How long a turn has lasted against the usual; or how far a switch is; or since when it is free."""
    age = scene.age_ms
    if one.holder is None:
        return Text(facts.short(one.since_ms + age), style="dim")
    if one.holder.state != "held":
        return switch(scene, one)
    held, expected = facts.held_ms(one.holder, age), facts.usual(scene.view, one)
    made = Text.assemble((facts.short(held), facts.length_style(held, expected)))
    return made.append(f" / {facts.short(expected)}" if expected else "", style="dim")


def switch(scene: Scene, one: SliceView) -> Text:
    """How far a switch is on the node that is last."""
    steps = [step for step in facts.moving(scene.view, one) if step.total]
    if not steps:
        return Text(facts.short(one.since_ms + scene.age_ms), style="yellow")
    last = min(steps, key=lambda step: step.moved / step.total)
    return Text(f"{last.doing} {last.moved / last.total:.0%}", style="yellow")
