"""When to try again what has failed: soon, then less often, with jitter. Pure: the clock is an argument."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(first_s * 2 ** min(failures - 1, 8), longest_s) * random.uniform(0.5, 1.0)


@dataclass(slots=True)
class Retry:
    """Failures in a row, and when the next try is due. The first and the longest pause are in seconds."""

    first_s: float = 0.1
    longest_s: float = 2.0
    failures: int = 0
    at: float = -math.inf

    def failed(self, now: float) -> None:
        self.failures += 1
        self.at = now + pause_after(self.failures, self.first_s, self.longest_s)

    def succeeded(self) -> None:
        self.failures, self.at = 0, -math.inf
