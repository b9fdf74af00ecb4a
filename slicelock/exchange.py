"""The page of shared memory over which two runs exchange a device whose memory does not hold both.

The leaving run frees its memory block by block and counts on the page what the driver has got back; the
coming run fills what was freed, block by block, while the other is still leaving. What makes it safe:

1. Every number has one writer, and only rises.
2. The leaver counts a block as freed after the driver has it, never before.
3. The comer counts a block as taken before it allocates it, and allocates it only if the leaver has made room
   for it (budget + freed - taken) and the driver says so too (free memory, less the margin).
4. The leaver never waits for the comer: if that one dies, stalls or never begins, the leaving goes on.
5. A leaver that must have its memory back says so and waits; the comer then gives back all that it has taken,
   says so, and fails its reload with its host copy whole. Without that word the leaver takes nothing.
6. Who is under way and holds no lock is dead, whatever its last numbers say. While no leaver is under way,
   the driver's free memory alone decides.

So either side can die at any point, and the other's state is either on the device or whole in host memory.
The page is a file, in shared memory, that the agent makes and hands to both; a side is locked by a range lock
of its process, which the kernel lets go of when that process ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from ctypes import Structure, c_char, c_uint64, sizeof
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

from slicelock.errors import ConfigurationError, RestoreFailed
from slicelock.host_memory import readable

MAGIC = b"slckexch"
VERSION = 1
KEY_BYTES = 64
PAUSE_S = 0.0002
PATIENCE_S = 30.0
"""Seconds without any progress of the other side after which a wait is given up."""
LOCK_FORMAT = "hhqqi"  # struct flock: type, whence, start, length, pid


class SideState(IntEnum):
    """How far a side is. GAVE_UP of a leaver: it wants its memory back; of a comer: it has given all back."""

    NOT_BEGUN = 0
    UNDER_WAY = 1
    DONE = 2
    GAVE_UP = 3


class _Header(Structure):
    magic: bytes
    version: int
    rows: int
    _fields_ = [("magic", c_char * 8), ("version", c_uint64), ("rows", c_uint64)]


class _Row(Structure):
    """One device. The first three fields are the page's maker's, then two of the leaver's, two of the
    comer's.
    """

    device: bytes
    budget: int
    margin: int
    leaver: int
    freed: int
    comer: int
    taken: int
    _fields_ = [
        ("device", c_char * KEY_BYTES),
        ("budget", c_uint64),
        ("margin", c_uint64),
        ("leaver", c_uint64),
        ("freed", c_uint64),
        ("comer", c_uint64),
        ("taken", c_uint64),
    ]


@dataclass(frozen=True, slots=True)
class Progress:
    """What the page says of one device; bytes."""

    leaver: SideState
    freed: int
    comer: SideState
    taken: int


class Exchange:
    """An open page. Each process opens it once and closes it when its hook is through."""

    def __init__(self, path: Path) -> None:
        """ConfigurationError for what is not a page of this version."""
        self._file = path.open("r+b")
        try:
            self._memory = mmap.mmap(self._file.fileno(), 0)
            self._rows = self._read_rows(path)
        except (ValueError, ConfigurationError) as failure:
            self._file.close()
            raise ConfigurationError(f"{path} is no exchange page: {failure}") from None

    @classmethod
    def create(cls, path: Path, budgets: Mapping[str, int], margin: int) -> Self:
        """Make a page for devices by their keys: the bytes free on each beforehand, and those that must
        stay so.
        """
        with path.open("xb") as file:
            file.write(bytes(_Header(MAGIC, VERSION, len(budgets))))
            for key, budget in budgets.items():
                file.write(bytes(_Row(key.encode()[:KEY_BYTES], max(0, budget - margin), margin)))
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the page. A side still under way counts as dead from here on."""
        self._rows.clear()
        self._file.close()  # and with it all locks; the mapping goes with the last that looks at it

    @property
    def keys(self) -> tuple[str, ...]:
        """The devices that are exchanged."""
        return tuple(self._rows)

    def has(self, key: str) -> bool:
        """Whether this device is exchanged."""
        return key[:KEY_BYTES] in self._rows

    def progress(self, key: str) -> Progress:
        """How far both sides are."""
        _, row = self._rows[key[:KEY_BYTES]]
        return Progress(SideState(row.leaver), row.freed, SideState(row.comer), row.taken)

    def leaving(self, key: str) -> LeavingSide:
        """Begin as the leaver; ConfigurationError when another process already does."""
        number, row = self._rows[key[:KEY_BYTES]]
        return LeavingSide(
            row, Lock(self._file.fileno(), 2 * number), Lock(self._file.fileno(), 2 * number + 1)
        )

    def coming(self, key: str, free_bytes: Callable[[], int], patience: float = PATIENCE_S) -> ComingSide:
        """Begin as the comer; ConfigurationError when another process already does."""
        number, row = self._rows[key[:KEY_BYTES]]
        leaver = Lock(self._file.fileno(), 2 * number)
        return ComingSide(row, Lock(self._file.fileno(), 2 * number + 1), leaver, free_bytes, patience)

    def _read_rows(self, path: Path) -> dict[str, tuple[int, _Row]]:
        header = _Header.from_buffer(self._memory)
        magic, version, count = header.magic, header.version, header.rows
        del header
        if (magic, version) != (MAGIC, VERSION):
            raise ConfigurationError(f"it begins with {magic!r} and version {version}.")
        places = (sizeof(_Header) + number * sizeof(_Row) for number in range(count))
        rows = [_Row.from_buffer(self._memory, place) for place in places]
        return {row.device.decode(): (number, row) for number, row in enumerate(rows)}


class Lock:
    """A byte of the page's file that a process holds as long as it lives and has the page open."""

    def __init__(self, descriptor: int, byte: int) -> None:
        self._descriptor, self._byte = descriptor, byte

    def take(self, who: str) -> None:
        """Hold it; ConfigurationError when another process does."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._byte)
        except OSError:
            raise ConfigurationError(f"Another process already is the {who} of this exchange.") from None

    def let_go(self) -> None:
        """Hold it no more."""
        with suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, self._byte)

    @property
    def held(self) -> bool:
        """Whether another process holds it."""
        asked = struct.pack(LOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, self._byte, 1, 0)
        answer = fcntl.fcntl(self._descriptor, fcntl.F_GETLK, asked)
        return struct.unpack(LOCK_FORMAT, answer)[0] != fcntl.F_UNLCK


class LeavingSide:
    """What the leaver says and sees of one device."""

    def __init__(self, row: _Row, mine: Lock, comers: Lock) -> None:
        mine.take("leaver")
        self._row, self._mine, self._comers = row, mine, comers
        if row.leaver == SideState.NOT_BEGUN:  # a second hook of the same process only goes on counting
            row.leaver = SideState.UNDER_WAY

    def freed(self, nbytes: int) -> None:
        """The driver has so many bytes back."""
        self._row.freed += nbytes

    def done(self) -> None:
        """Everything has been given back."""
        self._row.leaver = SideState.DONE
        self._mine.let_go()

    def take_back(self, patience: float = PATIENCE_S) -> bool:
        """Ask for the memory back; whether it may be taken: the comer has given back what it had, has never
        begun, or is dead. It may have finished by now: then the memory is its own.
        """
        self._row.leaver = SideState.GAVE_UP
        for _ in polling(patience, lambda: self._row.taken):
            held = self._comers.held
            if self._row.comer == SideState.DONE:  # read after the lock: it is written before that is let go
                return False
            if self._row.comer == SideState.GAVE_UP or not held:
                return True
        return False


class ComingSide:
    """What the comer says and sees of one device."""

    def __init__(
        self, row: _Row, mine: Lock, leavers: Lock, free_bytes: Callable[[], int], patience: float
    ) -> None:
        mine.take("comer")
        self._row, self._mine, self._leavers = row, mine, leavers
        self._free_bytes, self._patience = free_bytes, patience
        if row.comer == SideState.NOT_BEGUN:
            row.comer = SideState.UNDER_WAY

    def admit(self, nbytes: int) -> None:
        """Wait until a block of `nbytes` may be allocated, and count it as taken. RestoreFailed when the
        leaver wants its memory back, or when nothing moves for too long.
        """
        row = self._row
        for _ in polling(self._patience, lambda: (row.freed, row.leaver)):
            if row.leaver == SideState.GAVE_UP:
                raise RestoreFailed("The run that was leaving the device needs its memory back.")
            if self._room_made(nbytes) and self._free_bytes() >= nbytes + row.margin:
                row.taken += nbytes
                return
        raise RestoreFailed(
            f"No room for the next {readable(nbytes)} on the device within {self._patience:g} s: "
            f"{readable(self._free_bytes())} are free and {readable(row.margin)} must stay so."
        )

    def done(self) -> None:
        """Everything is on the device."""
        self._row.comer = SideState.DONE
        self._mine.let_go()

    def gave_back(self) -> None:
        """Nothing of this run is on the device any more."""
        self._row.comer = SideState.GAVE_UP
        self._mine.let_go()

    def _room_made(self, nbytes: int) -> bool:
        row = self._row
        leaving = row.leaver != SideState.DONE and self._leavers.held
        return not leaving or row.budget + row.freed >= row.taken + nbytes


def polling(patience: float, progress: Callable[[], object]) -> Iterator[None]:
    """Go round until nothing that `progress` returns has changed for `patience` seconds; at least once."""
    last, deadline = progress(), time.monotonic() + patience
    while True:
        yield
        time.sleep(PAUSE_S)
        if (now := progress()) != last:
            last, deadline = now, time.monotonic() + patience
        if time.monotonic() > deadline:
            return
