"""Which signals ask a program to end, and how it hears of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from types import FrameType


def ending() -> tuple[signal.Signals, ...]:
    """Ctrl-C, SIGTERM and SIGHUP; this one not where it is ignored: after nohup a program outlives its
    terminal."""
    hung_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hung_up)


@contextmanager
def handled(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Generator[None]:
    """While the block runs, these signals go to the handler; afterwards all is as it was. Needs the main
    thread."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def put_off() -> Generator[None]:
    """A signal that asks to end waits for the end of the block, whose code would lose it, or make an error of
    its own out of what the handler raises. Not in other threads, where no handler runs.
    """
    came: list[tuple[int, FrameType | None]] = []
    mine = [one for one in ending() if signal.getsignal(one) is not None]  # None: it is not Python's
    if threading.current_thread() is not threading.main_thread():
        mine = []
    try:
        with handled(mine, lambda number, frame: came.append((number, frame))):
            yield
    finally:
        with ExitStack() as each:  # all of them, whatever one raises
            for number, frame in reversed(came):
                each.callback(_deliver, number, frame)


def _deliver(number: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(number)
    handler(number, frame) if callable(handler) else signal.raise_signal(number)


def end_as_others() -> None:
    """Let signals that ask to end do so in the first process of a container too: the kernel keeps from it
    those that have no handler, and whoever stops it would have to kill it."""
    if os.getpid() == 1:
        for number in ending()[1:]:  # of Ctrl-C Python takes care
            signal.signal(number, lambda got, _: os._exit(128 + got))
