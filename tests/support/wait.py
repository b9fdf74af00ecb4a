"""Waiting for a condition, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
TIMEOUT_S, INTERVAL_S = 10.0, 0.005


def wait_until(condition: Callable[[], T], timeout: float = TIMEOUT_S, what: str = "") -> T:
    """Return the first true value of `condition()`; AssertionError when `timeout` seconds bring none."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        time.sleep(INTERVAL_S)
    return value


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]], timeout: float = TIMEOUT_S, what: str = ""
) -> T:
    """As `wait_until`; the condition may be a coroutine function, and other tasks run meanwhile."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        await asyncio.sleep(INTERVAL_S)
