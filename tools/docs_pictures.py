"""Draws the README's picture, for light and for dark pages: SVG without scripts and fonts of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
WIDTH, HEIGHT = 880, 262
LEFT, UNIT = 92, 36.6  # where time begins; pixels for a unit of time
ROWS = (30, 82, 152)  # the upper edges of job a, job b and the GPUs
BAR = 34
CAPTION = 232
END = 21.2


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours for one kind of page. A job has a strong colour, a soft one, and one for words on each."""

    text: str
    muted: str
    line: str
    strong: tuple[str, str]
    soft: tuple[str, str]
    on_strong: tuple[str, str]
    on_soft: tuple[str, str]


PALETTES = {
    "light": Palette(
        text="#1f2328",
        muted="#59636e",
        line="#b6bfc9",
        strong=("#1f6feb", "#bc4c00"),
        soft=("#b6d4ff", "#ffd2a8"),
        on_strong=("#ffffff", "#ffffff"),
        on_soft=("#0a2a5e", "#542400"),
    ),
    "dark": Palette(
        text="#f0f6fc",
        muted="#9ba5b1",
        line="#59636e",
        strong=("#58a6ff", "#f0883e"),
        soft=("#1d4a86", "#7a3f12"),
        on_strong=("#06182f", "#2b1200"),
        on_soft=("#dbe9ff", "#ffe6d1"),
    ),
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a job (0 or 1) does from `start` to `end`, in units of time."""

    job: int
    phase: str
    start: float
    end: float


SCHEDULE = (
    Stretch(0, "train", 0.0, 2.0),
    Stretch(0, "generate", 2.0, 5.0),
    Stretch(0, "reward", 5.0, 10.6),
    Stretch(0, "train", 10.6, 12.6),
    Stretch(0, "generate", 12.6, 15.6),
    Stretch(0, "reward", 15.6, END),
    Stretch(1, "reward", 0.0, 5.3),
    Stretch(1, "train", 5.3, 7.3),
    Stretch(1, "generate", 7.3, 10.3),
    Stretch(1, "reward", 10.3, 15.9),
    Stretch(1, "train", 15.9, 17.9),
    Stretch(1, "generate", 17.9, 20.9),
    Stretch(1, "reward", 20.9, END),
)
TURNS = ((0, 0.0, 5.0), (1, 5.3, 10.3), (0, 10.6, 15.6), (1, 15.9, 20.9))
SWITCHES = tuple((before[2], after[1]) for before, after in pairwise(TURNS))


def x(time: float) -> float:
    """The place of a time."""
    return round(LEFT + time * UNIT, 1)


def words(
    at: tuple[float, float], content: str, fill: str, *, anchor: str = "middle", weight: int = 400
) -> str:
    """One line of words whose middle is at a place."""
    left, middle = at
    style = f'font-size="14" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{left:g}" y="{middle + 5:g}" {style}>{escape(content)}</text>'


def bar(top: float, start: float, end: float, fill: str) -> str:
    """A filled stretch of time."""
    size = f'width="{x(end) - x(start):.1f}" height="{BAR}"'
    return f'<rect x="{x(start):g}" y="{top:g}" {size} rx="4" fill="{fill}"/>'


def stretch(one: Stretch, palette: Palette) -> Iterator[str]:
    """A phase of a job: on the GPUs a bar, elsewhere a dotted line."""
    top, middle = ROWS[one.job], ROWS[one.job] + BAR / 2
    centre = (x((one.start + one.end) / 2), middle)
    if one.phase == "reward":
        yield from away(one, middle, palette)
        return
    colours, on = (
        (palette.strong, palette.on_strong) if one.phase == "train" else (palette.soft, palette.on_soft)
    )
    gap = 0.06 if one.phase == "train" else 0.0
    yield bar(top, one.start, one.end - gap, colours[one.job])
    yield words(centre, one.phase, on[one.job])


def away(one: Stretch, middle: float, palette: Palette) -> Iterator[str]:
    """A phase without the GPUs: a dotted line with its name in the middle, if there is room."""
    spans = [(x(one.start) + 6, x(one.end) - 6)]
    if one.end - one.start > 3:
        centre = x((one.start + one.end) / 2)
        spans = [(spans[0][0], centre - 34), (centre + 34, spans[0][1])]
        yield words((centre, middle), "reward", palette.muted)
    for start, end in spans:
        if end > start:
            yield (
                f'<line x1="{start:g}" y1="{middle:g}" x2="{end:g}" y2="{middle:g}" stroke="{palette.line}" '
                'stroke-width="2" stroke-dasharray="2 5" stroke-linecap="round"/>'
            )


def gpus(palette: Palette) -> Iterator[str]:
    """Whose turn it is on the GPUs, and the switches between the turns."""
    top = ROWS[2]
    for job, start, end in TURNS:
        yield bar(top, start, end, palette.strong[job])
        centre = (x((start + end) / 2), top + BAR / 2)
        yield words(centre, f"{'ab'[job]}'s turn", palette.on_strong[job], weight=600)
    for start, end in SWITCHES:
        middle = x((start + end) / 2)
        yield (
            f'<line x1="{middle:g}" y1="{ROWS[0] - 8}" x2="{middle:g}" y2="{top + BAR + 10}" '
            f'stroke="{palette.line}" stroke-width="1"/>'
        )


def caption(palette: Palette) -> Iterator[str]:
    """What happens at a switch."""
    at = x((SWITCHES[0][0] + SWITCHES[0][1]) / 2)
    yield (
        f'<path d="M{at:g} {ROWS[2] + BAR + 10} V{CAPTION} H{at + 12:g}" fill="none" '
        f'stroke="{palette.line}" stroke-width="1"/>'
    )
    said = "a switch: a's state moves to host memory, b's comes back from there"
    yield words((at + 18, CAPTION), said, palette.muted, anchor="start")


def labels(palette: Palette) -> Iterator[str]:
    """The names of the rows."""
    for top, name in zip(ROWS, ("job a", "job b", "the GPUs"), strict=True):
        yield words((8, top + BAR / 2), name, palette.text, anchor="start", weight=600)


def draw(palette: Palette) -> str:
    """The whole picture as SVG text."""
    parts = [*labels(palette), *caption(palette), *gpus(palette)]
    parts += [part for one in SCHEDULE for part in stretch(one, palette)]
    said = "Two jobs alternate on the same GPUs: while one is graded, the other generates and trains."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="{FONT}" role="img">'
    )
    return "\n".join([head, f"<title>{said}</title>", *parts, "</svg>"]) + "\n"


def pictures() -> dict[str, str]:
    """Every picture's content by its path below `docs/`."""
    return {f"images/two-jobs-{name}.svg": draw(palette) for name, palette in PALETTES.items()}
