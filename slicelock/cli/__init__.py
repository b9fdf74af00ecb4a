"""The command line `slicelock`: one file for each group of commands."""

from slicelock.cli import (
    bench,
    demo,
    doctor,
    drain,
    events,
    exporter,
    report,
    run,
    slices,
    status,
    timeline,
    top,
    up,
)
from slicelock.cli.app import main

__all__ = [
    "bench",
    "demo",
    "doctor",
    "drain",
    "events",
    "exporter",
    "main",
    "report",
    "run",
    "slices",
    "status",
    "timeline",
    "top",
    "up",
]
