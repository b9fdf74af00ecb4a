"""Event loops."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread; None when there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
