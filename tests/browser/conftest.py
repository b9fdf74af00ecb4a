"""A real headless Chromium, which fails a test for whatever it complains of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium; it goes with the tests of the module."""
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Chromium is missing, and CI must test with it", pytrace=False)
        pytest.skip("Chromium is missing (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a text as a page, offline: `open_page(html, width=…)`. It must load nothing and not complain."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def opened(html: str, *, width: int = 1280, height: int = 760, scheme: str = "light") -> Any:
            path = tmp_path / "page.html"
            path.write_text(html, encoding="utf-8")
            context = chromium.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, locale="en-GB"
            )
            stack.callback(context.close)
            tab = context.new_page()
            tab.on("console", lambda said: complaints.append(f"console {said.type}: {said.text}"))
            tab.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            tab.on("request", lambda one: _local(one.url, path, complaints))
            tab.goto(path.as_uri())
            tab.wait_for_selector("html[data-ready]")
            return tab

        yield opened
    assert not complaints, complaints


def _local(url: str, path: Path, complaints: list[str]) -> None:
    if url != path.as_uri() and not url.startswith("data:"):
        complaints.append(f"the page asked for {url}")
