"""`slicelock timeline`: the history as a page to look at, or for Perfetto."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.console import say
from slicelock.cli.out_file import STANDARD_OUTPUT, write
from slicelock.cli.past import Past, past
from slicelock.cli.since import Since
from slicelock.history.report import Report
from slicelock.words import count


class Format(StrEnum):
    """What the file is for."""

    HTML = "html"
    PERFETTO = "perfetto"


Out = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="The file to write, as a whole or not at all; -: standard output.",
    ),
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
    write(out, html_of(seen, figures) if format_ is Format.HTML else trace_of(seen, figures))
    if out != STANDARD_OUTPUT:
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
