"""The strip of a slice's last minutes: a colour for each job, or its letter."""

from __future__ import annotations

from rich.text import Text

from slicelock.history import Block
from slicelock.tui.panels.pen import Depth, Pen
from slicelock.tui.panels.scene import Scene


def draw(scene: Scene, name: str, width: int) -> Text:
    """A slice's strip in `width` columns; with colours each has two halves."""
    pen, tracks, when = scene.pen, scene.view.tracks, (scene.now_ms, scene.view.window_ms)
    if pen.depth is Depth.NONE or pen.glyphs.left == pen.glyphs.full:
        return _runs([_one(block, pen) for block in tracks.strip(name, *when, width)])
    blocks = tracks.strip(name, *when, width * 2)
    return _runs([_two(blocks[at], blocks[at + 1], pen) for at in range(0, len(blocks), 2)])


def _one(block: Block, pen: Pen) -> tuple[str, str]:
    glyphs = pen.glyphs
    match block.what:
        case "held":
            letter = pen.palette.letter(block.job) if pen.depth is Depth.NONE else glyphs.full
            return letter, pen.job_style(block.job)
        case "switching":
            return glyphs.moving, "yellow"
        case "free":
            return glyphs.nothing, "dim"
        case "blocked":
            return glyphs.trouble, "red"
        case _:
            return glyphs.line, "yellow"


def _two(left: Block, right: Block, pen: Pen) -> tuple[str, str]:
    """Two halves are one character in two colours. Beside a turn, what has no colour is left empty."""
    held = (left.what == "held", right.what == "held")
    if held == (False, False):
        return _one(right if left.what == "free" else left, pen)
    if held == (True, True) and left.job != right.job:
        return pen.glyphs.left, f"{pen.job_style(left.job)} on {pen.job_style(right.job)}"
    if held == (True, False):
        return pen.glyphs.left, pen.job_style(left.job)
    if held == (False, True):
        return pen.glyphs.right, pen.job_style(right.job)
    return _one(left, pen)


def _runs(parts: list[tuple[str, str]]) -> Text:
    """Parts of the same style together: there are fewer bytes to send."""
    made, text, style = Text(), "", ""
    for part, its in parts:
        if its != style:
            made.append(text, style=style)
            text, style = "", its
        text += part
    return made.append(text, style=style)
