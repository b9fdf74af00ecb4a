"""A view of what was recorded: a picture and events as JSON, for tests and for the pictures of the docs."""

from __future__ import annotations

import json
from pathlib import Path

from slicelock.events import Event
from slicelock.picture import Picture
from slicelock.tui.model import View

PLACE = "redis:6379"


def recorded(path: Path, pool: str = "lab", **facts: object) -> View:
    """The view of a file with `picture` (as `status` tells it) and `events` ([ms, type, fields])."""
    told = json.loads(path.read_text(encoding="utf-8"))
    view = View(PLACE, pool, **facts)  # type: ignore[arg-type]
    view.take_events(
        Event(f"{at}-{number}", kind, at, fields) for number, (at, kind, fields) in enumerate(told["events"])
    )
    view.take_picture(Picture.of(pool, told["picture"]), 0.0)
    return view
