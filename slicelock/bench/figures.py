"""Numbers of a bench, and how they are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicelock.percentile import percentile

__all__ = ["Goal", "Spread", "percentile"]


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
