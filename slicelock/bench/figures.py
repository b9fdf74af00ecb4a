"""Numbers of a bench, and how they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank); ValueError for no values."""
    if not values:
        raise ValueError("there is nothing to take a percentile of")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the slow end of some times, in ms."""

    p50: float
    p99: float

    @classmethod
    def of(cls, values_ms: Sequence[float]) -> Spread:
        """Summarise some times."""
        return cls(percentile(values_ms, 0.5), percentile(values_ms, 0.99))

    def rounded(self) -> dict[str, float]:
        """For JSON."""
        return {"p50": round(self.p50, 4), "p99": round(self.p99, 4)}


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach."""

    name: str
    value: float
    limit: float
    at_most: bool

    @property
    def reached(self) -> bool:
        """Whether it does."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit
