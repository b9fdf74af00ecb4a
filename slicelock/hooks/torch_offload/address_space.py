"""A range of this process's memory that is reserved first and comes to life block by block."""

from __future__ import annotations

import ctypes
import os
import platform

from slicelock.errors import ConfigurationError

PROT_NONE, PROT_READ_WRITE = 0x0, 0x3
MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE = 0x02, 0x20, 0x4000
MADV_DONTFORK, MADV_HUGEPAGE, MADV_DONTDUMP, MADV_POPULATE_WRITE = 10, 14, 16, 23
MPOL_PREFERRED = 1
MBIND = {"x86_64": 237, "aarch64": 235}.get(platform.machine())
HUGE_PAGE = 2 << 20
FAILED = ctypes.c_void_p(-1).value


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    for name in ("mprotect", "madvise"):
        getattr(libc, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


class AddressSpace:
    """`nbytes` of address space. It costs nothing until it is opened and committed, is not inherited by
    forked children (a pinned page would have to be copied for each), and is left out of core dumps.

    `node`: the NUMA node that should give the memory, if known. ConfigurationError when the range cannot be
    reserved.
    """

    def __init__(self, nbytes: int, node: int | None = None) -> None:
        self.nbytes = nbytes
        self._libc = _libc()
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        address = self._libc.mmap(None, nbytes + HUGE_PAGE, PROT_NONE, flags, -1, 0)
        if address in (None, FAILED):
            raise ConfigurationError(
                f"Cannot reserve {nbytes} bytes of address space: {os.strerror(ctypes.get_errno())}.",
                advice="Raise the limit (ulimit -v), or set SLICELOCK_HOST_POOL to less.",
            )
        self._mapped = (int(address), nbytes + HUGE_PAGE)
        self.address = -(-int(address) // HUGE_PAGE) * HUGE_PAGE
        for advice in (MADV_DONTFORK, MADV_DONTDUMP, MADV_HUGEPAGE):
            self._libc.madvise(self.address, nbytes, advice)  # each is a wish; not every kernel has all
        self._prefer(node)

    def open(self, nbytes: int) -> None:
        """Allow access up to there; MemoryError when the system does not. Other threads that commit or pin
        memory of this process are held up by it, so open much at a time.
        """
        if self._libc.mprotect(self.address, nbytes, PROT_READ_WRITE):
            raise MemoryError(os.strerror(ctypes.get_errno()))

    def commit(self, offset: int, nbytes: int) -> None:
        """Have real, zeroed memory in an open part."""
        begin = self.address + offset
        if self._libc.madvise(begin, nbytes, MADV_POPULATE_WRITE):
            ctypes.memset(begin, 0, nbytes)  # before Linux 5.14

    def release(self) -> None:
        """Give everything back; the addresses mean nothing afterwards."""
        address, nbytes = self._mapped
        if nbytes:
            self._libc.munmap(address, nbytes)
            self._mapped = (0, 0)

    def _prefer(self, node: int | None) -> None:
        if node is None or node < 0 or MBIND is None:
            return
        mask = ctypes.c_ulong(1 << node)
        size = ctypes.c_ulong(8 * ctypes.sizeof(mask))
        self._libc.syscall(
            ctypes.c_long(MBIND),
            ctypes.c_void_p(self.address),
            ctypes.c_ulong(self.nbytes),
            ctypes.c_int(MPOL_PREFERRED),
            ctypes.byref(mask),
            size,
            ctypes.c_uint(0),
        )
