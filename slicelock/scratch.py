"""Temporary folders that do not long outlive their owner: what a killed process leaves, the next removes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from slicelock.errors import ConfigurationError
from slicelock.shortage import remedy


def temporary() -> Path:
    """The folder for temporary files; ConfigurationError when there is none."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise ConfigurationError(
            "There is no folder for temporary files that can be written.", advice="Set TMPDIR to one."
        ) from None


@contextmanager
def scratch(parent: Path, purpose: str) -> Generator[Path]:
    """A new folder in `parent`, gone at the end. First removes those for this `purpose` of killed owners.

    ConfigurationError when no folder can be made there.
    """
    # The name tells the owner, by pid namespace and pid: containers may share a folder.
    prefix = f"slicelock-{purpose}-{Path('/proc/self/ns/pid').stat().st_ino}-"
    try:
        _sweep(parent, prefix)
        made = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))
    except OSError as failure:
        raise ConfigurationError(
            f"No folder can be made in {parent}: {failure.strerror}.",
            advice=remedy(str(failure)) or "Free space or change its rights.",
        ) from None
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _sweep(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}*"):
        owner = left.name.removeprefix(prefix).split("-")[0]
        with suppress(OSError):  # another one was quicker
            if not Path("/proc", owner).exists() and left.stat().st_uid == os.geteuid():
                shutil.rmtree(left, ignore_errors=True)
