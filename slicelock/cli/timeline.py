"""`slicelock timeline`: the history as a page to look at, or for Perfetto."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.console import say
from slicelock.cli.failures import Refused
from slicelock.cli.past import Past, past
from slicelock.cli.since import Since
from slicelock.history.report import Report
from slicelock.words import count


class Format(StrEnum):
    """What the file is for."""

    HTML = "html"
    PERFETTO = "perfetto"


Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help="The file to write; it is replaced as a whole."),
]


@app.command(epilog="Example: slicelock timeline --out timeline.html --since 6h")
def timeline(
    out: Out,
    since: Since = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format", help="html: a page that needs no network; perfetto: for ui.perfetto.dev and Chrome."
        ),
    ] = Format.HTML,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Write a page with every turn, wait and switch, by slice and job, and the report's figures beside it."""
    seen = past(pool, since)
    figures = seen.report()
    replace(out, html_of(seen, figures) if format_ is Format.HTML else trace_of(seen, figures))
    say(f"Wrote {out} ({count(figures.events, 'event')}).")


def html_of(seen: Past, figures: Report) -> str:
    """The HTML page."""
    from slicelock.history.drawing import drawing
    from slicelock.history.page import page

    return page(drawing(seen.history, figures, seen.pool))


def trace_of(seen: Past, figures: Report) -> str:
    """The trace as JSON."""
    from slicelock.history.perfetto import trace

    return json.dumps(trace(seen.history, figures, seen.pool), separators=(",", ":"))


def replace(path: Path, text: str) -> None:
    """Write a file as a whole or not at all; Refused says why not."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise Refused(
            f"{path} was not written: {error.strerror or error}.", advice="Choose another --out."
        ) from None
