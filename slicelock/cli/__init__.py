"""The command line `slicelock`: one file for each group of commands."""

from slicelock.cli import slices, status, up
from slicelock.cli.app import main

__all__ = ["main", "slices", "status", "up"]
