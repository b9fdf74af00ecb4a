"""The characters of the view, and what stands for them where the terminal's encoding lacks them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of characters; each is one column wide. `levels` rise from empty to full."""

    held: str
    switching: str
    free: str
    trouble: str
    settling: str
    draining: str
    mark: str
    line: str
    full: str
    left: str
    right: str
    moving: str
    nothing: str
    bar_full: str
    bar_empty: str
    levels: str
    dot: str
    dash: str
    more: str
    arrows: str
    live: str
    swatch: str

    def bar(self, share: float, width: int) -> tuple[str, str]:
        """The full and the empty part of a bar."""
        full = round(max(0.0, min(1.0, share)) * width)
        return self.bar_full * full, self.bar_empty * (width - full)

    def level(self, share: float) -> str:
        """One character that shows a share."""
        return self.levels[round(max(0.0, min(1.0, share)) * (len(self.levels) - 1))]


UNICODE = Glyphs(
    held="●",
    switching="◐",
    free="○",
    trouble="✖",
    settling="◌",
    draining="▽",
    mark="▌",
    line="─",
    full="█",
    left="▌",
    right="▐",
    moving="░",
    nothing="·",
    bar_full="━",
    bar_empty="─",
    levels="▁▂▃▄▅▆▇█",
    dot="·",
    dash="–",
    more="…",
    arrows="↑↓",
    live="●",
    swatch="■",
)
ASCII = Glyphs(
    held="*",
    switching="~",
    free="o",
    trouble="!",
    settling="?",
    draining="v",
    mark=">",
    line="-",
    full="#",
    left="#",
    right="#",
    moving=":",
    nothing=".",
    bar_full="=",
    bar_empty="-",
    levels="0123456789",
    dot="-",
    dash="-",
    more="~",
    arrows="jk",
    live="*",
    swatch="#",
)


def glyphs_for(encoding: str) -> Glyphs:
    """The characters that an encoding has."""
    try:
        "".join(getattr(UNICODE, name) for name in Glyphs.__slots__).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
