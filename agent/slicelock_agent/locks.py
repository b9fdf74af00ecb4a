"""Files whose lock says that one process alone has something. The lock ends with it, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


class TakenError(Exception):
    """Another process has the lock. The message is what that one has written there."""


def lock(path: Path) -> IO[str]:
    """Lock a file, made with its folder if need be, until it is closed.

    TakenError when another process has it; OSError when it cannot be used.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Others may write in this folder too, and may have put a link there.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.fdopen(os.open(path, flags, 0o644), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = file.read().strip() or "an agent that has just begun"
        file.close()
        raise TakenError(holder) from None
    return file


def sign(file: IO[str], holder: str) -> None:
    """Write into a locked file who has it."""
    file.truncate(0)
    file.write(holder)
    file.flush()
