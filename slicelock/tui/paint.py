"""Lines of rich's text as what a terminal understands, and what a terminal can show."""

from __future__ import annotations

import os
from io import StringIO
from typing import Any, TextIO

from rich.console import Console, Group
from rich.text import Text

from slicelock.tui.glyphs import glyphs_for
from slicelock.tui.palette import Palette
from slicelock.tui.panels import Depth, Pen


class Painter:
    """Knows one output: its characters and its colours."""

    def __init__(self, out: TextIO, palette: Palette, *, colour: bool | None = None) -> None:
        """`colour` overrides what the output and the environment say."""
        seen = Console(file=out, markup=False, emoji=False)
        system = seen.color_system if colour is None or seen.color_system else "truecolor"
        self.plain = seen.no_color or system is None or colour is False
        self._system: Any = system
        self._attributes = system is not None
        depth = Depth.NONE if self.plain else Depth.PLAIN if system == "standard" else Depth.RICH
        self.pen = Pen(glyphs_for(out.encoding or "ascii"), palette, depth)

    def lines(self, drawn: list[Text], width: int) -> list[str]:
        """Each line as one string."""
        console = Console(
            file=StringIO(),
            force_terminal=True,
            color_system=self._system,
            no_color=self.plain,
            width=width,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        if not self._attributes:
            return [line.plain.rstrip() for line in drawn]
        with console.capture() as caught:
            console.print(Group(*drawn), no_wrap=True, overflow="crop", crop=True)
        return caught.get().split("\n")[: len(drawn)]


def can_draw(out: TextIO) -> bool:
    """Whether lines can be drawn anywhere on this output."""
    return out.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
