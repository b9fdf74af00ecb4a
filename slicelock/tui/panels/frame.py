"""The whole view in lines."""

from __future__ import annotations

from rich.text import Text

from slicelock.tui.model import Mode, View
from slicelock.tui.panels import dialogs, head
from slicelock.tui.panels.details import details
from slicelock.tui.panels.jobs import jobs
from slicelock.tui.panels.pen import Pen, cut
from slicelock.tui.panels.scene import Scene
from slicelock.tui.panels.table import table

WIDE = 132  # columns from which the details stand beside the table
LEAST_DETAILS, ENOUGH_DETAILS = 9, 16  # lines; with enough of them, jobs get the rest
SMALLEST = (40, 8)


def frame(view: View, now_s: float, pen: Pen, width: int, height: int) -> list[Text]:
    """At most `height` lines of at most `width` columns."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return [cut(Text(f"too small: {width}x{height}, needs {SMALLEST[0]}x{SMALLEST[1]}"), width)]
    scene, room = Scene(view, now_s, pen), height - 4
    lines = body(scene, width, room)
    if view.is_stale(now_s):
        lines = [Text(line.plain, style="dim") for line in lines]
    if view.mode is Mode.HELP:
        lines = dialogs.over(lines, dialogs.help_(view, pen, width), room)
    elif view.question is not None:
        lines = dialogs.over(lines, dialogs.question(view.question, pen, width), room)
    lines = [cut(line, width) for line in lines] + [Text()] * (room - len(lines))
    top = [head.title(scene, width), head.totals(scene, width), head.notice(scene, width)]
    return [*top, *lines, head.key_hints(scene, width)]


def body(scene: Scene, width: int, height: int) -> list[Text]:
    """What lies between the lines above and below."""
    if scene.view.opened:
        return details(scene, width, height, whole=True)
    if width >= WIDE:
        return beside(scene, width, height)
    room = min(height, max(6, height - LEAST_DETAILS))
    lines = table(scene, width, room)[:room]
    shares = below(scene, width, height - len(lines) - ENOUGH_DETAILS)
    lines += details(scene, width, height - len(lines) - len(shares), whole=False)
    return lines + (shares or below(scene, width, height - len(lines)))


def beside(scene: Scene, width: int, height: int) -> list[Text]:
    """The table at the left, the selected slice at the right."""
    left = max(78, width * 54 // 100)
    rows = table(scene, left, height)[:height]
    rows += below(scene, left, height - len(rows))
    told = details(scene, width - left - 1, height, whole=False)
    border = ("│" if scene.pen.glyphs.line == "─" else "|", "dim")
    lines: list[Text] = []
    for at in range(height):
        line = scene.pen.fit(rows[at], left) if at < len(rows) else Text(" " * left)
        lines.append(Text.assemble(line, border, told[at] if at < len(told) else ""))
    return lines


def below(scene: Scene, width: int, height: int) -> list[Text]:
    """What jobs have had, where there is room left."""
    told = jobs(scene, width, height - 1)
    return [scene.pen.rule(width), *told] if told else []
