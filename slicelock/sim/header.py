"""What stands at the beginning of a device's file: its size, what is in use, whose state it is, and who is
admitted."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from mmap import mmap

from slicelock.errors import SimError

PAGE = 4096
MAGIC = b"SLCKSIM1"

_FIXED = struct.Struct("<8sQ")  # magic, capacity
_USED = struct.Struct("<Q")
_USED_AT = 64
_ACTIVE_AT = 128
_SLOT = struct.Struct("<Q?B64s")  # fence, admitted, length of the run's name, the name
_SLOTS_AT = (256, 512)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose state is in the memory (empty: nobody's), whether that run is admitted, and the highest fence
    ever admitted."""

    run: str = ""
    fence: int = 0
    admitted: bool = False


def blank(capacity: int) -> bytes:
    """The header of a new device of `capacity` bytes, with nothing in use and nobody admitted."""
    return _FIXED.pack(MAGIC, capacity).ljust(PAGE, b"\0")


def capacity_of(head: bytes, path: object) -> int:
    """The capacity that a header names; SimError if it is no header."""
    if len(head) < _FIXED.size or not head.startswith(MAGIC):
        raise SimError(
            f"{path} is not a simulated device.",
            advice="Move it away, or set SLICELOCK_SIM_DIR to another folder.",
        )
    return _FIXED.unpack_from(head)[1]


class Header:
    """The header in a mapped device file. One process, the agent, writes the owner; any job may read it at
    any moment."""

    def __init__(self, memory: mmap) -> None:
        self._memory = memory

    @property
    def used(self) -> int:
        """Bytes of device memory given out."""
        return _USED.unpack_from(self._memory, _USED_AT)[0]

    @used.setter
    def used(self, value: int) -> None:
        _USED.pack_into(self._memory, _USED_AT, value)

    @property
    def owner(self) -> Owner:
        while True:
            active = self._memory[_ACTIVE_AT]
            fence, admitted, length, name = _SLOT.unpack_from(self._memory, _SLOTS_AT[active])
            if self._memory[_ACTIVE_AT] == active:
                return Owner(name[:length].decode(), fence, admitted)

    @owner.setter
    def owner(self, value: Owner) -> None:
        # Written beside the slot in force, then put in force by one byte: a reader sees the old owner or the
        # new one, never half of each, and so does whoever comes after a writer that was killed here.
        spare = 1 - self._memory[_ACTIVE_AT]
        name = value.run.encode()
        _SLOT.pack_into(self._memory, _SLOTS_AT[spare], value.fence, value.admitted, len(name), name)
        self._memory[_ACTIVE_AT] = spare
