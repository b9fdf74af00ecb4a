"""What a metric is: a name, a meaning, labels whose values are few. The reference page is made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

WAITS_S = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400)
SWITCHES_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
CALLS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5)


class Kind(StrEnum):
    """The kinds of metrics that Prometheus knows."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Protocol):
    """A metric with its labels' values: whichever of these its kind has."""

    def inc(self, amount: float = 1) -> None: ...
    def set(self, value: float) -> None: ...
    def observe(self, amount: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, for all values of its labels."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: Sequence[float] = ()


class Families:
    """Some metrics in one registry. `fixed`: labels that have the same value everywhere here."""

    def __init__(
        self, families: Sequence[Family], registry: CollectorRegistry, fixed: Mapping[str, str]
    ) -> None:
        self._made = {one.name: _made(one, registry) for one in families}
        self._fixed = dict(fixed)

    def at(self, name: str, **labels: str) -> Metric:
        """The metric of that name, for these values of its labels."""
        return cast(Metric, self._made[name].labels(**self._fixed, **labels))


def _made(family: Family, registry: CollectorRegistry) -> Any:
    match family.kind:
        case Kind.COUNTER:
            return Counter(family.name, family.help, family.labels, registry=registry)
        case Kind.GAUGE:
            return Gauge(family.name, family.help, family.labels, registry=registry)
        case Kind.HISTOGRAM:
            return Histogram(
                family.name, family.help, family.labels, registry=registry, buckets=family.buckets
            )


class Capped:
    """Names for a label that users choose: the first `most` different ones, then `other`."""

    def __init__(self, most: int = 100) -> None:
        self._most, self._known = most, set[str]()

    def __call__(self, name: str) -> str:
        if name not in self._known:
            if len(self._known) >= self._most:
                return "other"
            self._known.add(name)
        return name
