"""The command line `slicelock`: one file for each group of commands."""

from slicelock.cli import doctor, slices, status, up
from slicelock.cli.app import main

__all__ = ["doctor", "main", "slices", "status", "up"]
