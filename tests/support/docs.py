"""Reads the project's Markdown: pages, blocks of code with the directive above them, headings, links.

A directive is a comment on the line above a block:

    <!-- run: no -->                              shown only, not run
    <!-- run: terminal 1 -->                      run in that terminal of the page, in order
    <!-- run: terminal 1, until "some words" -->  goes on running; it is ready when it has said the words
    <!-- run: elsewhere -->                       another test runs it
    <!-- file: name.py -->                        what the reader saves under that name
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^(?:<!-- (?P<directive>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code on a page."""

    page: Path
    line: int
    language: str
    directive: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def shown_only(self) -> bool:
        """Whether the page says that it is not to be run."""
        return self.directive == "run: no"


def pages() -> list[Path]:
    """Every page for readers."""
    single = [
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "lua/README.md")
    ]
    return [*single, *sorted((ROOT / "docs").rglob("*.md"))]


def text_of(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """A page's blocks of code in these languages, in order."""
    text = text_of(page)
    for found in BLOCK.finditer(text):
        if found["language"] in languages:
            line = text.count("\n", 0, found.start()) + (2 if found["directive"] else 1)
            yield Block(page, line, found["language"], found["directive"] or "", found["text"])


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return BLOCK.sub("", text_of(page))


def links(page: Path) -> list[str]:
    """What a page points to."""
    return [found[1] or found[2] for found in LINK.finditer(prose(page))]


def anchors(page: Path) -> set[str]:
    """The names that a page's headings can be pointed to by, as GitHub makes them."""
    headings = (heading.replace("`", "") for heading in HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
