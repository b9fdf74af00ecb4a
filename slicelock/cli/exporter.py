"""`slicelock exporter`: a pool's metrics for Prometheus."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.console import say, stopping
from slicelock.metrics import check_installed
from slicelock.settings import StoreSettings, listening_at

LOOK_S = 0.25

Listen = Annotated[
    str,
    typer.Option(
        "--listen",
        metavar="ADDRESS",
        help="HOST:PORT to serve at, or a port of the loopback; 0: any free one.",
    ),
]


@app.command(epilog="Example: slicelock exporter --listen 0.0.0.0:9465")
def exporter(
    listen: Listen = "127.0.0.1:9465", pool: options.Pool = None, debug: options.Debug = False
) -> None:
    """Serve metrics of the whole pool for Prometheus, until Ctrl-C."""
    check_address(listen)
    check_installed()
    from slicelock.metrics.exporter import Exporter

    settings = StoreSettings.load(pool=pool)
    settings.url()
    with stopping() as stopped, closing(Exporter(settings, listen, say)) as made:
        say(f"slicelock: metrics of pool {settings.pool} at {made.server.url}/metrics")
        while not stopped():
            time.sleep(LOOK_S)


def check_address(text: str) -> None:
    """A usage error when this is no address to listen at."""
    try:
        listening_at(text)
    except ValueError as failure:
        raise typer.BadParameter(str(failure), param_hint="--listen") from None
