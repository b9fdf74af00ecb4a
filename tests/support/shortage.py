"""Has this process run short of descriptors or threads."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def descriptors() -> int:
    """How many are open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """While the block runs, no more than so many can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, hard))
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


@contextmanager
def no_threads(begin: str) -> Iterator[None]:
    """While the block runs, no thread can be started whose name begins so."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(begin):
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield
