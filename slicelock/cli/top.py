"""`slicelock top`: the pool as it lives, in a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.console import say
from slicelock.settings import StoreSettings

PIPED_COLUMNS = 100  # room for every column, and the details below the table


@app.command(epilog="Example: slicelock top --pool training --readonly")
def top(
    refresh: Annotated[
        float, typer.Option("--refresh", min=0.25, max=60, help="Seconds between two looks at the pool.")
    ] = 1.0,
    readonly: Annotated[
        bool, typer.Option("--readonly", help="Offer nothing that changes the pool.", show_default=False)
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and end, for pipes.", show_default=False)
    ] = False,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Watch who has which slice, who waits and why, and what switches cost. Press ? for the keys."""
    from slicelock.tui import app as tui
    from slicelock.tui.paint import can_draw

    settings = StoreSettings.load(pool=pool)
    settings.url()
    drawable = can_draw(sys.stdout) and sys.stdin.isatty()
    if once or not drawable:
        if not once:
            say("slicelock: this is no terminal that can be drawn on, so here is one frame (--once).")
        size = shutil.get_terminal_size()
        width, height = (size.columns, size.lines) if sys.stdout.isatty() else (PIPED_COLUMNS, None)
        for line in tui.once(settings, width, height):
            print(line)
        return
    if code := tui.App(settings, refresh, readonly=readonly).run():
        raise typer.Exit(code)
