"""Looking at paths that somebody else has named."""

from __future__ import annotations

import os
from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether there is something at a path, as far as this user may look.

    `Path.exists` raises where nobody may look, and for a name that is too long. Whoever uses the path next
    says what is wrong with it, and what to do.
    """
    return os.path.exists(path)  # noqa: PTH110 - never raises
