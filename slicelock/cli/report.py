"""`slicelock report`: was sharing worth it."""

from __future__ import annotations

from slicelock.cli import options, report_tables
from slicelock.cli.app import app
from slicelock.cli.console import show, show_json
from slicelock.cli.past import past
from slicelock.cli.since import Since


@app.command(epilog="Example: slicelock report --since 1d")
def report(
    since: Since = None,
    as_json: options.Json = False,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """Show whether sharing was worth it: what each job got and paid, and what became of each slice's time."""
    figures = past(pool, since).report()
    if as_json:
        show_json(figures.as_json())
    else:
        show(report_tables.whole(figures))
