"""What lines are drawn with: characters, colours, and columns that fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from rich.text import Text

from slicelock.tui.glyphs import Glyphs
from slicelock.tui.palette import Palette

# The terminal's own colours, which its owner has chosen for its ground.
STATE_STYLES = {
    "free": "dim",
    "switching": "yellow",
    "held": "",
    "blocked": "bold red",
    "settling": "yellow",
    "draining": "yellow",
}


class Depth(Enum):
    """How many colours there are."""

    NONE = 0
    PLAIN = 16
    RICH = 256


@dataclass(frozen=True, slots=True)
class Pen:
    """Draws for one terminal."""

    glyphs: Glyphs
    palette: Palette
    depth: Depth = Depth.RICH

    def job_style(self, job: str) -> str:
        """A job's colour; none where there are none."""
        return "" if self.depth is Depth.NONE else self.palette.colour(job, plain=self.depth is Depth.PLAIN)

    def job(self, job: str, *, bold: bool = False) -> Text:
        """A job's name in its colour, or behind its letter."""
        if self.depth is Depth.NONE:
            return Text(f"{self.palette.letter(job)} {job}")
        return Text(job, style=f"{'bold ' if bold else ''}{self.job_style(job)}")

    def state(self, state: str) -> Text:
        """A state with its sign."""
        signs = {"held": self.glyphs.held, "switching": self.glyphs.switching, "free": self.glyphs.free}
        signs |= {"blocked": self.glyphs.trouble, "settling": self.glyphs.settling}
        signs |= {"draining": self.glyphs.draining}
        return Text(f"{signs[state]} {state}", style=STATE_STYLES[state])

    def bar(self, share: float, width: int, style: str) -> Text:
        """A bar that is filled to a share."""
        full, empty = self.glyphs.bar(share, width)
        return Text.assemble((full, style), (empty, "dim"))

    def rule(self, width: int, title: Text | None = None) -> Text:
        """A line across, with a title in it."""
        if title is None:
            return Text(self.glyphs.line * width, style="dim")
        made = Text.assemble((self.glyphs.line * 2 + " ", "dim"), title, " ")
        return made.append(self.glyphs.line * max(0, width - made.cell_len), style="dim")

    def short(self, text: str, width: int, style: str = "") -> Text:
        """At most `width` columns of it."""
        return self.fit(Text(text, style=style), min(width, Text(text).cell_len))

    def fit(self, text: Text | str, width: int, *, right: bool = False) -> Text:
        """Exactly `width` columns of it."""
        made = Text(text) if isinstance(text, str) else text.copy()
        if made.cell_len > width:
            return (
                cut(made, width - 1).append(self.glyphs.more if width else "")
                if width > 1
                else cut(made, width)
            )
        padding = " " * (width - made.cell_len)
        return Text.assemble(padding, made) if right else made.append(padding)


def cut(text: Text, width: int) -> Text:
    """At most `width` columns of it."""
    made = text.copy()
    if made.cell_len > width:
        made.truncate(max(width, 0), overflow="crop")
    return made


def joined(parts: Iterable[Text | str], gap: str = "  ") -> Text:
    """Those parts that are not empty, side by side."""
    made = Text()
    for part in parts:
        text = Text(part) if isinstance(part, str) else part
        if text.plain:
            made.append(gap if made.plain else "").append_text(text)
    return made


def spread(left: Text, right: Text, width: int) -> Text:
    """One part at each end of a line; the right one goes where there is no room for both."""
    room = width - left.cell_len - right.cell_len
    if room < 1:
        return cut(left, width)
    return Text.assemble(left, " " * room, right)
