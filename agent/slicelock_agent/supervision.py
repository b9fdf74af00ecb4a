"""Tasks that never die unheard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger("slicelock_agent")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
AGAIN_S = 0.2
STEADY_S = 30.0
"""After so long without an error the pauses begin anew."""


async def supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` for ever: whatever it raises is logged, and after a pause it begins anew."""
    pause, loop = FIRST_PAUSE_S, asyncio.get_running_loop()
    while True:
        begun = loop.time()
        try:
            await work()
        except Exception:  # whatever it is: the agent goes on
            log.exception("%s failed; it begins anew in %.1f s", name, pause)
        if loop.time() - begun > STEADY_S:
            pause = FIRST_PAUSE_S
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)


async def unless(event: asyncio.Event, work: Awaitable[T]) -> T | None:
    """The result of `work`; None when the event is set before, and `work` is cancelled then."""
    task, told = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, told):
            one.cancel()
        await asyncio.gather(task, told, return_exceptions=True)


async def cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended; some library calls swallow a cancellation."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
