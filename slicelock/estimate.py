"""What sharing gains, by one formula: before a job adopts slicelock (`observe`) and afterwards (`report`)."""

from __future__ import annotations

from collections.abc import Iterable


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The time covered by at least one span: turns of several lanes may overlap."""
    total, end = 0.0, float("-inf")
    for begin, until in sorted(spans):
        total += max(until - max(begin, end), 0.0)
        end = max(end, until)
    return total


def together(total: float, busy: float, jobs: int = 2) -> float:
    """How long `jobs` like jobs take that share. Each takes `total` alone, and the accelerators for `busy` of
    it: together as long as one alone, or as long as the accelerators are needed. Switches come on top."""
    return max(total, jobs * busy)


def saved(apart: float, shared: float) -> float:
    """The share of time (or of accelerator-hours) that sharing saves against one after the other; negative
    when it costs more, 0 for nothing."""
    return 1 - shared / apart if apart > 0 else 0.0
