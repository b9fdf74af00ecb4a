"""The command line `slicelock`: one file for each group of commands, imported when it is asked for."""

from slicelock.cli.app import main

__all__ = ["main"]
