"""What lies over the view: the question before an action, and help."""

from __future__ import annotations

from textwrap import wrap

from rich.text import Text

from slicelock.tui.intents import Question
from slicelock.tui.model import View
from slicelock.tui.panels.pen import Pen

LONGEST = 68
KEYS = (
    ("up down j k", "select a slice"),
    ("Enter", "its details and last events; Esc: back"),
    ("s", "sort by name, state, queue, longest wait, time held"),
    ("/", "show only slices that fit: names, states, jobs, nodes"),
    ("p Space", "pause: the picture stands still"),
    ("w", "window of strips and totals: 1, 5, 15 minutes"),
    ("Ctrl-L", "draw everything anew"),
    ("q", "quit"),
)
ACTS = (
    ("r", "revoke the turn of the selected slice"),
    ("d", "drain the slice, or let it go on"),
    ("D", "drain a node of the slice, or let it go on"),
)


def question(asked: Question, pen: Pen, width: int) -> list[Text]:
    """A box with what will happen."""
    told = (part for line in asked.lines for part in wrap(line, min(width - 8, LONGEST)))
    body = [Text(asked.ask, style="bold"), Text(), *(Text(line) for line in told), Text()]
    body.append(Text.assemble(("y", "bold green"), " do it    ", ("n", "bold"), " leave it as it is"))
    return box(body, pen, width, "bold yellow")


def help_(view: View, pen: Pen, width: int) -> list[Text]:
    """Keys and signs."""
    keys = (*KEYS, *(ACTS if view.acts else ()))
    body = [Text.assemble((f"{name:<12}", "bold"), what) for name, what in keys]
    glyphs = pen.glyphs
    body += [
        Text(),
        Text.assemble(
            ("strip  ", "bold"), f"a colour for each job; {glyphs.moving} switching; {glyphs.nothing} free"
        ),
        Text.assemble(("usual  ", "bold"), "the median of the job's last turns of this phase"),
        Text.assemble(("duty   ", "bold"), "the share of the window in which somebody had the slices"),
    ]
    return box(body, pen, width, "cyan")


def box(body: list[Text], pen: Pen, width: int, style: str) -> list[Text]:
    """Lines in a frame, in the middle of a width."""
    corners = "╭╮╰╯│─" if pen.glyphs.line == "─" else "++++|-"
    inner = min(max(line.cell_len for line in body), width - 6)
    left = " " * max(0, (width - inner - 4) // 2)
    top, bottom = (
        Text(f"{left}{a}{corners[5] * (inner + 2)}{b}", style=style) for a, b in (corners[:2], corners[2:4])
    )
    side = (corners[4], style)
    rows = [Text.assemble(left, side, " ", pen.fit(line, inner), " ", side) for line in body]
    return [top, *rows, bottom]


def over(lines: list[Text], dialog: list[Text], height: int) -> list[Text]:
    """A dialog over the middle of some lines."""
    made = [*lines, *(Text() for _ in range(height - len(lines)))][:height]
    first = max(0, (height - len(dialog)) // 2)
    made[first : first + len(dialog)] = dialog[: height - first]
    return made
