"""`slicelock events`: what has happened in a pool, and what happens now."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Annotated

import typer
from rich.console import Console

from slicelock.cli import event_lines, options
from slicelock.cli.app import app
from slicelock.cli.console import say
from slicelock.cli.since import Since, since_ms
from slicelock.errors import SlicelockError
from slicelock.events import Event
from slicelock.output import Output
from slicelock.settings import StoreSettings
from slicelock.store import EventReader, Outage, PrimaryWatch

DEFAULT_SINCE = "1h"
LOOK_S = 5.0  # the longest wait for one answer; Redis is known to be there after each
RETRY_S = 1.0


@app.command(epilog="Example: slicelock events --follow --slice trainers")
def events(
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens from now on, until Ctrl-C.")
    ] = False,
    since: Since = None,
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            help="Only events of this slice, or of the whole pool.",
            callback=options.name_of("slice"),
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a JSON object on a line.", show_default=False)
    ] = False,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Show what has happened, oldest first: the last hour, or from --since on; with --follow what comes."""
    start, live = since or ("" if follow else DEFAULT_SINCE), watching(pool) if follow else nullcontext()
    with suppress(KeyboardInterrupt), reader(pool, start) as source, live:
        for batch in followed(source) if follow else iter(source.read, []):
            write([one for one in batch if not slice_ or one.concerns(slice_)], as_json)


@contextmanager
def watching(pool: str | None) -> Generator[None]:
    """Meanwhile connections to a primary that has been replaced are cut, so that others are opened."""
    with closing(PrimaryWatch(StoreSettings.load(pool=pool), lambda: None)) as watch:
        watch.start()
        yield


def reader(pool: str | None, since: str) -> EventReader:
    """Reads a pool's events from `since` on, or those to come."""
    settings = StoreSettings.load(pool=pool)
    if not since:
        return EventReader(settings)
    with EventReader(settings) as clock:
        return EventReader(settings, since_ms=since_ms(since, clock.now_ms()))


def followed(source: EventReader) -> Iterator[list[Event]]:
    """Events as they come, for ever. An outage of Redis is told and waited out, and so is one that refuses
    what it has answered before.
    """
    yield source.read()
    outage = Outage()
    while True:
        try:
            batch = source.read(LOOK_S)
        except SlicelockError as failure:
            if outage.is_news(failure):
                say(f"slicelock: {failure} Waiting for it.")
            time.sleep(RETRY_S)
        else:
            outage.over()
            yield batch


def write(batch: list[Event], as_json: bool) -> None:
    """Print some events, at once; without any, see that somebody still reads them."""
    if not batch and isinstance(sys.stdout, Output):
        sys.stdout.check()
    if as_json:
        lines = (json.dumps(one.as_json()) for one in batch)
    elif not sys.stdout.isatty():
        lines = (event_lines.line(one).plain for one in batch)
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        for one in batch:
            console.print(event_lines.line(one), soft_wrap=True)
        return
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
