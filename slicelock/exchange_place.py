"""Where the page of an exchange lies for a command to a process's hooks. Agent and process both work it out,
so that it goes through nobody else's hands.

The folder is in shared memory and belongs to whoever keeps it, root or the user, so that no other user can
put a page there; the page itself belongs to the user whose runs exchange.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def folder_of(keeper: int, user: int) -> Path:
    """Where a keeper (root, or the user) lays out pages for a user's processes."""
    return SHARED_MEMORY / f"slicelock-exchange-{keeper}-{user}"


def name_of(process: str, n: int) -> str:
    """The page's name for command `n` of a process, which is named by its identity."""
    return f"{process}.{n}"


def page_of(process: str, n: int) -> Path | None:
    """The page that an agent laid out for command `n` of this very process; None when there is none."""
    user = os.geteuid()
    for keeper in {user, 0}:
        folder = folder_of(keeper, user)
        with suppress(OSError):
            page = folder / name_of(process, n)
            if is_kept_by(folder, keeper) and stat.S_ISREG(page.lstat().st_mode):
                return page
    return None


def is_kept_by(folder: Path, keeper: int) -> bool:
    """Whether the folder is one, and only its keeper can change what is in it. OSError when it is missing."""
    facts = folder.lstat()
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == keeper and not facts.st_mode & OTHERS_MAY_WRITE
