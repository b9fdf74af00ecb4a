"""Where a waiting flow is woken, from the companion's thread."""

from __future__ import annotations

import asyncio
from queue import Empty, SimpleQueue


class ThreadInbox:
    """Wakes a thread. The queue is written in C, so an interrupt cannot leave a lock of it closed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def put(self) -> None:
        self._queue.put(None)

    def wait(self, seconds: float) -> bool:
        try:
            self._queue.get(timeout=max(seconds, 0.0))
            while not self._queue.empty():
                self._queue.get_nowait()
        except Empty:
            return False
        return True


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
