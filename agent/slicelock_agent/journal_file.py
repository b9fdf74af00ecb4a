"""A file that keeps the newest value of each item, a line for each change, and survives a kill at any moment.

A change is one write to the end of the file; a line that a kill or a full disk cut short was never there. Now
and then the file is written anew without what is out of date, and takes the old one's place in one step.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import cast

HEAD = b'{"slicelock-journal":2}\n'
OLDER = b"SQLite format 3"
LONG = 1 << 20
"""Bytes from which on a file is written anew, if that makes it half as long."""

encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: every hand-over writes


class JournalFile:
    """An open file, for one process at a time. `items` is what it says: a JSON text by kind and name.

    OSError when the file cannot be used, ValueError when it is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items = _read(path)
        self._fd, self._size = _written(path, self.items)
        self._long = max(LONG, 2 * self._size)
        self._torn = False

    def put(self, kind: str, name: str, text: str | None) -> None:
        """Write an item's new value, or that it is gone; OSError leaves everything as it was."""
        line = _line(kind, name, text)
        try:
            if self._torn:
                os.ftruncate(self._fd, self._size)
            self._torn = True
            _write(self._fd, line)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._torn = False
        self._size += len(line)
        self._note(kind, name, text)

    def of(self, kind: str) -> dict[str, str]:
        """The items of one kind, by name."""
        return {name: text for (one, name), text in self.items.items() if one == kind}

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _note(self, kind: str, name: str, text: str | None) -> None:
        if text is None:
            self.items.pop((kind, name), None)
        else:
            self.items[kind, name] = text
        if self._size > self._long:
            self._shorten()

    def _shorten(self) -> None:
        """Write the file anew; it stays as it is when there is no room for another one."""
        with contextlib.suppress(OSError):
            old = self._fd
            self._fd, self._size = _written(self.path, self.items)
            os.close(old)  # a network's file system may tell only now of what it could not store
        self._long = max(LONG, 2 * self._size)


def _line(kind: str, name: str, text: str | None) -> bytes:
    return f"{encode([kind, name])[:-1]},{'null' if text is None else text}]\n".encode()


def _read(path: Path) -> dict[tuple[str, str], str]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    if not raw.startswith(HEAD):
        ours = raw.startswith((HEAD[:21], OLDER))
        raise ValueError("it was written by another version" if ours else "it is something else")
    items: dict[tuple[str, str], str] = {}
    for line in raw[len(HEAD) : raw.rfind(b"\n") + 1].splitlines():
        kind, name, value = cast(tuple[str, str, object], json.loads(line))
        items[kind, name] = encode(value)
    return {item: text for item, text in items.items() if text != "null"}


def _written(path: Path, items: dict[tuple[str, str], str]) -> tuple[int, int]:
    """Write the file anew; its descriptor, at the end of it, and its size."""
    text = HEAD + b"".join(_line(kind, name, text) for (kind, name), text in items.items())
    new = path.with_suffix(".new")
    fd = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write(fd, text)
        new.replace(path)
    except BaseException:
        os.close(fd)
        new.unlink(missing_ok=True)
        raise
    return fd, len(text)


def _write(fd: int, text: bytes) -> None:
    if os.write(fd, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
