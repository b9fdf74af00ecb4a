"""Waiting for a condition, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
TIMEOUT_S = 10.0
INTERVAL_S, SHARE, LONGEST_S = 0.005, 0.02, 0.025


def _pause(began: float) -> float:
    """Seconds until the next look. Who has waited for long looks less often: looks of four workers take as
    much of a machine as what they wait for."""
    return min(max(INTERVAL_S, SHARE * (time.monotonic() - began)), LONGEST_S)


def wait_until(condition: Callable[[], T], timeout: float = TIMEOUT_S, what: str = "") -> T:
    """Return the first true value of `condition()`; AssertionError when `timeout` seconds bring none."""
    began = time.monotonic()
    while not (value := condition()):
        if time.monotonic() > began + timeout:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        time.sleep(_pause(began))
    return value


async def wait_until_async(
    condition: Callable[[], T | Awaitable[T]], timeout: float = TIMEOUT_S, what: str = ""
) -> T:
    """As `wait_until`; the condition may be a coroutine function, and other tasks run meanwhile."""
    began = time.monotonic()
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > began + timeout:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        await asyncio.sleep(_pause(began))
