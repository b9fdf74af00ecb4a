"""`slicelock demo`: two real training jobs share one accelerator."""

from __future__ import annotations

from typing import Annotated

import typer

from slicelock.cli import options
from slicelock.cli.app import app
from slicelock.cli.failures import ExitCode
from slicelock.errors import ConfigurationError


@app.command(epilog="Example: slicelock demo --jobs 3 --json")
def demo(
    jobs: Annotated[int, typer.Option("--jobs", min=2, max=8, help="How many training jobs take turns.")] = 2,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """See two training jobs share one accelerator, and one killed in its turn. No GPU, no Redis needed.

    With PyTorch and a GPU, two PyTorch jobs share that one; else the accelerator is a simulated one.
    """
    try:
        from slicelock.demo import run
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The demo needs the package {error.name!r}.", advice="Run: pip install 'slicelock[demo]'"
        ) from None
    if not run(jobs, as_json=as_json):
        raise typer.Exit(ExitCode.OTHER)
