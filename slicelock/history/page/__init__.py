"""The history as one HTML page that needs no network: its files are put together, names only as data."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

SCRIPTS = ("model", "theme", "scale", "draw", "hover", "panel", "main")
"""The page's scripts, in their order; they share one scope."""


def page(drawing: dict[str, Any]) -> str:
    """The page for a drawing (`slicelock.history.drawing`)."""
    parts = {
        "style": _file("page.css"),
        "script": "".join(_file(f"{name}.js") for name in SCRIPTS),
        "data": _harmless(json.dumps(drawing, separators=(",", ":"))),
    }
    before, *rest = _file("page.html").split("<!-- put ")
    pieces = [before]
    for part in rest:
        name, _, after = part.partition(" -->")
        pieces += (parts[name], after)
    return "".join(pieces)


def _file(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _harmless(text: str) -> str:
    """JSON that cannot end the element it stands in: a job may be named as its user likes."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
