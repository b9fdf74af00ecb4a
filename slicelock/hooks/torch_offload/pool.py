"""Pinned host memory for one device: made ahead of time in the background, block by block, and kept."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from functools import cache
from typing import Protocol

from slicelock import host_memory
from slicelock.host_memory import readable
from slicelock.settings import Settings

log = logging.getLogger("slicelock")

BLOCK = 256 << 20
"""Bytes that are pinned at a time. While one is being pinned the driver may hold up the job's own calls."""
SMALLEST_BLOCK = 2 << 20  # a huge page
MOST_THREADS = 8
SETTING = "SLICELOCK_HOST_POOL"


class Memory(Protocol):
    """Where a pool gets its memory: address space first, then real pages in it."""

    address: int
    nbytes: int

    def open(self, nbytes: int) -> None: ...
    def commit(self, offset: int, nbytes: int) -> None: ...
    def release(self) -> None: ...


class Pinner(Protocol):
    """Makes memory reachable for the device at the speed of the bus."""

    def pin(self, address: int, nbytes: int) -> None: ...
    def unpin(self, address: int) -> None: ...


class Allowance:
    """How much host memory all pools of this process may pin together.

    What the machine and its control groups can give; without a `limit` in bytes, less the machine's reserve.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._used = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> str:
        """Take so many bytes; the reason if they cannot be had."""
        with self._lock:
            reason = self._refusal(nbytes)
            if not reason:
                self._used += nbytes
            return reason

    def give_back(self, nbytes: int) -> None:
        """Return what was taken."""
        with self._lock:
            self._used -= nbytes

    def _refusal(self, nbytes: int) -> str:
        if self.limit is None:
            return host_memory.refusal(nbytes)
        if self._used + nbytes > self.limit:
            return f"{SETTING} is {readable(self.limit)}"
        return host_memory.refusal(nbytes, host_memory.LAST)


def block_for(limit: int | None) -> int:
    """The size of blocks under a limit: the usual one, or less where that would be too much."""
    return (
        BLOCK if limit is None else min(BLOCK, max(SMALLEST_BLOCK, limit // SMALLEST_BLOCK * SMALLEST_BLOCK))
    )


def _some_processors() -> int:
    """Zeroing pages is what takes long; it may have a quarter of the processors."""
    return min(MOST_THREADS, max(1, len(os.sched_getaffinity(0)) // 4))


@cache
def process_allowance() -> Allowance:
    """What all pools of this process may pin together, by its settings."""
    limit = Settings.load().host_pool
    return Allowance(None if limit is None else int(limit))


class HostPool:
    """A growing range of pinned memory, usable from its start up to `ready` bytes.

    Blocks are made by a few threads that exist only while something is to be pinned. A block that cannot be
    made ends the growth until more is asked for; `reason` says why.
    """

    def __init__(
        self,
        memory: Memory,
        pinner: Pinner,
        allowance: Allowance,
        *,
        block: int,
        threads: int | None = None,
    ) -> None:
        self.address, self.block = memory.address, block
        self.ready = 0
        self.reason = ""
        self._memory, self._pinner, self._allowance = memory, pinner, allowance
        self._blocks = memory.nbytes // block
        self._wanted = 0  # blocks
        self._begun: set[int] = set()
        self._done: set[int] = set()
        self._threads, self._running = threads or _some_processors(), set[threading.Thread]()
        self._changed = threading.Condition()
        _pools.add(self)

    def ahead(self, nbytes: int) -> None:
        """Grow to hold `nbytes`, in the background."""
        with self._changed:
            self.reason = "the process ends" if _ending.is_set() else ""
            if self.reason:
                return
            self._want(min(-(-nbytes // self.block), self._blocks))
            for _ in range(min(self._threads, len(self._missing())) - len(self._running)):
                thread = threading.Thread(target=self._work, name="slicelock-pinning", daemon=True)
                try:
                    self._running.add(thread)
                    thread.start()
                except RuntimeError as failure:  # the limit of threads, or the interpreter ends
                    self._running.discard(thread)
                    self.reason = "" if self._running else f"no thread can be started: {failure}"
                    break
                except BaseException:
                    self._running.discard(thread)  # it may have started all the same, and ends at once
                    raise

    def ensure(self, nbytes: int) -> int:
        """Wait until the pool holds `nbytes` or cannot grow; how many bytes it holds."""
        self.ahead(nbytes)
        with self._changed:
            self._changed.wait_for(lambda: self.ready >= nbytes or not self._running)
            return self.ready

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is being pinned; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)

    def stop(self) -> None:
        """Begin no more blocks, and wait for those under way: each takes a fraction of a second."""
        with self._changed:
            self._wanted = 0
        self.settle()

    def close(self) -> None:
        """Stop growing, and give all memory back. The first failure to unpin is raised when all the rest is
        unpinned; what could not be stays pinned, and another call tries it again."""
        self.stop()
        failures: list[Exception] = []
        for number in sorted(self._done):
            try:
                self._pinner.unpin(self.address + number * self.block)
            except Exception as failure:  # noqa: BLE001 - raised below
                failures.append(failure)
            else:
                self._done.discard(number)
                self._begun.discard(number)
                self.ready = min(self.ready, number * self.block)
                self._allowance.give_back(self.block)
        if failures:  # memory that is pinned cannot be given to anything else
            raise failures[0]
        self._memory.release()

    def _want(self, blocks: int) -> None:
        if blocks > self._wanted:
            try:
                self._memory.open(blocks * self.block)
            except MemoryError as failure:
                self.reason = f"the system gives no more memory: {failure}"
            else:
                self._wanted = blocks

    def _missing(self) -> list[int]:
        return [number for number in range(self._wanted) if number not in self._begun]

    def _work(self) -> None:
        while (number := self._next()) is not None:
            reason = self._make(number)
            with self._changed:
                self._note(number, reason)
                self._changed.notify_all()

    def _next(self) -> int | None:
        """The next block to make; None, and one thread less, when there is none or it may not be."""
        with self._changed:
            if threading.current_thread() not in self._running:
                return None
            missing = [] if self.reason else self._missing()
            if missing:
                self.reason = self._taken()
            if missing and not self.reason:
                self._begun.add(missing[0])
                return missing[0]
            self._running.discard(threading.current_thread())
            if self.reason and not self._running:
                log.info("the host pool stays at %s: %s", readable(self.ready), self.reason)
            self._changed.notify_all()
            return None

    def _taken(self) -> str:
        """Take the memory for a block; why not, if not."""
        try:
            return self._allowance.take(self.block)
        except Exception as failure:  # noqa: BLE001 - as in a process with too many open files
            return f"{type(failure).__name__}: {failure}"

    def _make(self, number: int) -> str:
        """Have the block; why not, if not."""
        try:
            self._memory.commit(number * self.block, self.block)
            self._pinner.pin(self.address + number * self.block, self.block)
        except Exception as failure:  # noqa: BLE001 - whatever it is, the pool is as large as it is
            self._allowance.give_back(self.block)
            return f"{type(failure).__name__}: {failure}"
        return ""

    def _note(self, number: int, reason: str) -> None:
        if reason:
            self._begun.discard(number)
            self.reason = reason
            return
        self._done.add(number)
        while self.ready // self.block in self._done:
            self.ready += self.block


_pools: weakref.WeakSet[HostPool] = weakref.WeakSet()
_ending = threading.Event()


def _stop_all() -> None:
    """Python ends threads that outlive it in the middle of a call; one that is in PyTorch's C++ code then
    would take the whole process with it (SIGABRT)."""
    _ending.set()  # a hook may be under way, which is waited for after this
    for pool in list(_pools):
        pool.stop()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_pools.clear)  # a child has none of the threads
