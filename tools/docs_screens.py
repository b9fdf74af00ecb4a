"""Takes the docs' pictures of `slicelock top` from recorded states: as SVG by rich, and PNG by Chromium.

    python tools/docs_screens.py            # writes docs/images/top-*

The states are those that the tests draw. The times on the pictures are in UTC.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from slicelock.tui.glyphs import UNICODE
from slicelock.tui.panels import Pen, frame
from slicelock.tui.recorded import recorded

PNG_WIDTH = 1600
ROOT = Path(__file__).resolve().parent.parent
STATES, IMAGES = ROOT / "tests/data/top", ROOT / "docs/images"
ANSI_DARK = [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255)]
ANSI_LIGHT = [(36, 41, 47), (207, 34, 46), (17, 99, 41), (149, 85, 0), (9, 105, 218), (130, 80, 223)]
THEMES = {
    "dark": TerminalTheme(
        (13, 17, 23),
        (214, 221, 228),
        [*ANSI_DARK, (57, 197, 207), (177, 186, 196)],
        [*ANSI_DARK, (86, 212, 221), (255, 255, 255)],
    ),
    "light": TerminalTheme(
        (255, 255, 255),
        (31, 35, 40),
        [*ANSI_LIGHT, (27, 124, 131), (110, 119, 129)],
        [*ANSI_LIGHT, (49, 146, 170), (140, 149, 159)],
    ),
}
# Without the font that rich would have fetched from the network.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: which state, how large, after which keys."""

    name: str
    state: str
    width: int
    height: int
    theme: str = "dark"
    keys: tuple[str, ...] = ()


SHOTS = (
    Shot("top-wide-dark", "busy", 150, 30, keys=("end",)),
    Shot("top-wide-light", "busy", 150, 30, "light", keys=("end",)),
    Shot("top-80x24-dark", "busy", 80, 24, keys=("end",)),
    Shot("top-80x24-light", "busy", 80, 24, "light", keys=("end",)),
    Shot("top-switch", "busy", 100, 26, keys=("j", "enter")),
    Shot("top-revoke", "busy", 80, 24, keys=("end", "r")),
)


def draw(shot: Shot) -> str:
    """The picture as SVG."""
    view = recorded(STATES / f"{shot.state}.json", may_act=True)
    for key in shot.keys:
        view.press(key, 0.0)
    console = Console(
        record=True, width=shot.width, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    for line in frame(view, 0.0, Pen(UNICODE, view.palette), shot.width, shot.height):
        console.print(line, no_wrap=True, overflow="crop", crop=True, highlight=False)
    title = f"slicelock top, {shot.width}x{shot.height}"
    theme = THEMES[shot.theme]
    svg = console.export_svg(title=title, theme=theme, code_format=FORMAT, unique_id=shot.name)
    return svg.replace("<style>", f"<title>{title}</title>\n<style>", 1)


PNGS = ("top-wide-dark",)  # for pages that show no SVG


def take(target: Path) -> None:
    """PNGs of pictures that are there as SVG."""
    from docs_png import smaller
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in PNGS:
            tab = browser.new_page(viewport={"width": PNG_WIDTH, "height": 1})
            svg = (target / f"{name}.svg").read_text(encoding="utf-8")
            tab.set_content(f"<style>body {{ margin: 0 }} svg {{ display: block }}</style>{svg}")
            (target / f"{name}.png").write_bytes(smaller(browser, tab.locator("svg").screenshot()))
        browser.close()


def main(folder: str = "") -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    target = Path(folder) if folder else IMAGES
    for shot in SHOTS:
        (target / f"{shot.name}.svg").write_text(draw(shot), encoding="utf-8")
    take(target)
    print(f"docs: wrote {len(SHOTS) + len(PNGS)} pictures to {target}")


if __name__ == "__main__":
    main(*sys.argv[1:])
