"""Ctrl-C without surprises: a signal is noticed at once and acted upon where nothing is half done."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from slicelock.signals import ending, handled


class Interrupts:
    """Remembers the first signal that asks for the end."""

    def __init__(self) -> None:
        self._first: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._first is None:
            self._first = number

    def check(self) -> None:
        """Raise KeyboardInterrupt after Ctrl-C, SystemExit with the shell's code after another signal."""
        if self._first == signal.SIGINT:
            raise KeyboardInterrupt
        if self._first is not None:
            raise SystemExit(128 + self._first)


@contextmanager
def held_back() -> Generator[Interrupts]:
    """While the block runs, signals are only remembered; needs the main thread."""
    interrupts = Interrupts()
    with handled(ending(), interrupts.note):
        yield interrupts
