"""`slicelock exporter`: a pool's metrics for Prometheus."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.console import say, stopping
from slicelock.cli.failures import UsageError
from slicelock.metrics import check_installed
from slicelock.settings import POOL_METRICS, StoreSettings, listening_at

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
def exporter(listen: Listen = POOL_METRICS, pool: options.Pool = None, debug: options.Debug = False) -> None:
    """Serve metrics of the whole pool for Prometheus, until Ctrl-C."""
    address = address_of(listen)
    check_installed()
    from slicelock.metrics.exporter import Exporter
    from slicelock.metrics.serving import CannotListen

    settings = StoreSettings.load(pool=pool)
    settings.url()
    with stopping() as stopped, ExitStack() as stack:
        try:
            made = stack.enter_context(closing(Exporter(settings, address, say)))
        except CannotListen as failure:
            advice = f"Choose another --listen, for example {POOL_METRICS}."
            raise UsageError(str(failure), advice=advice) from None
        say(f"slicelock: metrics of pool {settings.pool} at {made.server.url}/metrics")
        while not stopped():
            time.sleep(LOOK_S)


def address_of(text: str) -> tuple[str, int]:
    """The host and port; a usage error when this is no address to listen at."""
    try:
        return listening_at(text, POOL_METRICS)
    except ValueError as failure:
        raise typer.BadParameter(str(failure), param_hint="--listen") from None
