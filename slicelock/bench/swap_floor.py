"""The floor of a switch: plain copies between pinned memory and the device, in large blocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LARGEST_BUFFER = 4 << 30


def measure(torch: Any, nbytes: int, cycles: int) -> dict[str, list[float]]:
    """Seconds for `nbytes` out, in, and both ways at once (that many each way), `cycles` times each."""
    buffer = min(nbytes, LARGEST_BUFFER)
    pairs = [_pair(torch, buffer) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    rounds = [min(buffer, nbytes - done) for done in range(0, nbytes, buffer)]

    def go(*ways: int) -> Callable[[], None]:
        def work() -> None:
            for size in rounds:
                for way in ways:
                    _copy(torch, pairs[way], streams[way], way, size)
            torch.cuda.synchronize()

        return work

    kinds = {"out": go(0), "in": go(1), "both": go(0, 1)}
    for work in kinds.values():
        work()
    return {name: [_timed(work) for _ in range(cycles)] for name, work in kinds.items()}


def _pair(torch: Any, nbytes: int) -> tuple[Any, Any]:
    host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    return host, torch.empty(nbytes, dtype=torch.uint8, device="cuda:0")


def _copy(torch: Any, pair: tuple[Any, Any], stream: Any, way: int, nbytes: int) -> None:
    host, device = pair
    target, source = (host, device) if way == 0 else (device, host)
    with torch.cuda.stream(stream):
        target[:nbytes].copy_(source[:nbytes], non_blocking=True)


def _timed(work: Callable[[], None]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
