"""Small pieces of Markdown that the generators share."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Text that fits one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; every cell is folded into one line."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines)


def code(text: object) -> str:
    """Text as code; nothing stays nothing."""
    return f"`{text}`" if str(text) else ""


def docstring(thing: object) -> str:
    """A cleaned docstring; empty when there is none of its own."""
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "")


def sections(parts: Iterable[str]) -> str:
    """Parts with an empty line between them; empty parts are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())
