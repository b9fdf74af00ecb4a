"""`slicelock demo`: real training jobs take turns on one accelerator, and a report says what it
brought."""

from slicelock.demo.play import run

__all__ = ["run"]
