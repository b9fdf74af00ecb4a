"""What the system has no more of for a process, descriptors and threads: errors of ours with the remedy."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from slicelock.errors import StoreUnavailable

NO_THREAD = "new thread"  # in what Python says where it can start none
_REMEDIES = {
    os.strerror(errno.EMFILE): "Have this process close what it need not keep open, or raise its limit of "
    "descriptors (ulimit -n).",
    os.strerror(errno.ENFILE): "End processes that keep much open, or raise the machine's fs.file-max.",
    NO_THREAD: "End threads or processes, or raise the limit for them (ulimit -u, or that of the container).",
    os.strerror(errno.ENOMEM): "Free memory on this machine, or in this process's group.",
}


def remedy(text: str) -> str:
    """What to do where an error's text names a shortage; empty for any other."""
    return next((advice for sign, advice in _REMEDIES.items() if sign in text), "")


@contextmanager
def explained(failed: str, otherwise: str) -> Generator[None]:
    """What the system refuses, as StoreUnavailable: without it Redis is not reached, or not started.

    `failed` is what cannot be done, and `otherwise` the remedy where nothing is short.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and NO_THREAD not in str(error):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise StoreUnavailable(f"{failed}: {why}.", advice=remedy(why) or otherwise) from None


def start(thread: threading.Thread) -> None:
    """Start a thread; StoreUnavailable when there can be no more of them."""
    with explained(f"The thread {thread.name} cannot be started", "Try again."):
        thread.start()
