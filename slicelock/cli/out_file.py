"""Writes a result into a file that the user has named."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import cast

from slicelock.cli.failures import Refused

STANDARD_OUTPUT = "-"


def write(out: str, text: str) -> None:
    """Write a file as a whole or not at all, with the mode and owner that it had; a link stays one.
    Standard output gets the same bytes, whatever the locale.

    What is there and is no plain file, such as a pipe or a device, stays what it is and gets the text.
    Refused says why it was not written.
    """
    if out == STANDARD_OUTPUT:
        cast(TextIOWrapper, sys.stdout).reconfigure(encoding="utf-8")
        sys.stdout.write(text)
        return
    try:
        _write(Path(out), text)
    except BrokenPipeError:
        raise  # its reader has seen enough
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or error
        raise Refused(f"{str(Path(out))!r} was not written: {why}.", advice="Choose another --out.") from None


def _write(path: Path, text: str) -> None:
    place = path.resolve()
    try:
        there = path.stat()
    except FileNotFoundError:
        _replace(place, text, None)
        return
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # What /proc/self/fd/1 leads to need not have a name.
    if stat.S_ISREG(there.st_mode) and place.exists() and place.samefile(path):
        _replace(place, text, there)
        return
    with path.open("w", encoding="utf-8") as file:
        file.write(text)


def _replace(place: Path, text: str, there: os.stat_result | None) -> None:
    beside = place.with_name(f".slicelock.{os.getpid()}")
    with beside.open("x", encoding="utf-8") as file:
        try:
            if there:
                with suppress(PermissionError):  # only root gives files to others
                    os.fchown(file.fileno(), there.st_uid, there.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(there.st_mode))
            file.write(text)
            file.flush()
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
