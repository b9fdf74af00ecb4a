"""Where a waiting flow is woken, from the companion's thread."""

from __future__ import annotations

import asyncio
import threading
import time
from queue import Empty, SimpleQueue

from slicelock.companion.ear import Ear


class ThreadInbox:
    """Wakes a thread, or lets it listen for itself where there is an `ear`.

    The queue is written in C, so an interrupt cannot leave a lock of it closed.
    """

    def __init__(self, ear: Ear | None = None) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self._ear, self._thread = ear, threading.get_ident()

    @property
    def noted(self) -> bool:
        """Whether something has come since the last wait."""
        return not self._queue.empty()

    def put(self) -> None:
        self._queue.put(None)
        if self._ear and threading.get_ident() != self._thread:
            self._ear.tell(self)

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        if self._ear and self._queue.empty():
            self._ear.hear(self, until)
        try:
            self._queue.get(timeout=max(until - time.monotonic(), 0.0))
            while not self._queue.empty():
                self._queue.get_nowait()
        except Empty:
            return False
        return True

    def close(self) -> None:
        """Wait no more."""
        if self._ear:
            self._ear.give_back(self)


class LoopInbox:
    """Wakes a coroutine of the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def put(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop has been closed, and with it whoever waited
            return

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
