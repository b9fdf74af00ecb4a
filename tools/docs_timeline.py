"""Takes the docs' pictures of the timeline with Chromium, or tells how long it opens a long one.

    python tools/docs_timeline.py                  # writes docs/images/timeline-light.png and -dark.png
    python tools/docs_timeline.py --time 100000    # opens a page of so many events, in ms

The times on the pictures are in UTC.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TZ"] = "UTC"

from docs_png import smaller
from playwright.sync_api import Browser, sync_playwright

from slicelock.bench.day import day
from slicelock.events import Event
from slicelock.history import History
from slicelock.history.drawing import drawing
from slicelock.history.page import page
from slicelock.history.report import report

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
SHOWN = 420  # events on the pictures
OPENINGS = 5
SIZES = {"pool-a": 8, "pool-b": 8}


def main() -> int:
    """Do what the command line says."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--force-color-profile=srgb"]
        )
        path = Path(folder, "timeline.html")
        if sys.argv[1:2] == ["--time"]:
            path.write_text(html(int(sys.argv[2])), encoding="utf-8")
            print(opening(browser, path))
        else:
            path.write_text(html(SHOWN), encoding="utf-8")
            for scheme in ("light", "dark"):
                take(browser, path, scheme)
        browser.close()
    return 0


def html(events: int) -> str:
    """The page of a plausible day."""
    history = History(Event.of(f"{at}-{n}", fields) for n, (at, fields) in enumerate(day(events, seed=3)))
    return page(drawing(history, report(history, devices=SIZES), "rl-lab"))


def take(browser: Browser, path: Path, scheme: Any) -> None:
    """A picture with something pointed at."""
    tab = browser.new_page(
        viewport={"width": 1280, "height": 860},
        color_scheme=scheme,
        device_scale_factor=1.5,
        timezone_id="UTC",
    )
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]")
    tab.locator("button.wait").first.click()
    tab.evaluate("document.getElementById('report').scrollTop = 0")
    (IMAGES / f"timeline-{scheme}.png").write_bytes(smaller(browser, tab.screenshot()))
    tab.close()


def opening(browser: Browser, path: Path) -> dict[str, float]:
    """Median ms from the navigation to a page that is drawn and answers, and of drawing it once."""
    opened: list[float] = []
    drawn: list[float] = []
    for _ in range(OPENINGS):
        tab = browser.new_page(viewport={"width": 1440, "height": 800})
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]")
        opened.append(tab.evaluate("timeline.openedMs"))
        drawn.append(tab.evaluate("timeline.drawnMs"))
        tab.close()
    return {"opened_ms": round(statistics.median(opened), 1), "drawn_ms": round(statistics.median(drawn), 1)}


if __name__ == "__main__":
    sys.exit(main())
