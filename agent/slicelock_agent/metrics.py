"""The agent's metrics, and its answers to health checks, served from a thread beside the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from slicelock.errors import ConfigurationError
from slicelock.metrics.families import CALLS_S, SWITCHES_S, Families, Family, Kind
from slicelock.metrics.serving import CannotListen, MetricsServer
from slicelock.settings import AGENT_METRICS, AgentSettings, listening_at
from slicelock.states import RunState
from slicelock_agent.result import Result
from slicelock_agent.switcher import Switcher
from slicelock_agent.tally import Tally

PATIENCE_S = 2.0  # for the event loop to show that it is alive
FIXED = ("pool", "node")


def _family(name: str, kind: Kind, meaning: str, *labels: str, buckets: tuple[float, ...] = ()) -> Family:
    return Family(f"slicelock_agent_{name}", kind, meaning, (*FIXED, *labels), buckets)


FAMILIES = (
    _family("build_info", Kind.GAUGE, "1, with the agent's version.", "version"),
    _family(
        "switches_total", Kind.COUNTER, "Switches: ready, or what could not be done.", "slice", "outcome"
    ),
    _family(
        "switch_duration_seconds",
        Kind.HISTOGRAM,
        "From the first sight of a switch to its result.",
        "slice",
        buckets=SWITCHES_S,
    ),
    _family(
        "switch_step_duration_seconds",
        Kind.HISTOGRAM,
        "How long steps of switches took, by the backend that did them.",
        "step",
        "way",
        buckets=SWITCHES_S,
    ),
    _family(
        "switch_step_bytes_total", Kind.COUNTER, "Bytes that steps of switches have moved.", "step", "way"
    ),
    _family("runs", Kind.GAUGE, "Runs with state on this node, by where it is.", "slice", "state"),
    _family("beats_total", Kind.COUNTER, "Heartbeats to Redis: answered, or failed.", "outcome"),
    _family("beats_late_total", Kind.COUNTER, "Answers that came when half of the node's time was over."),
    _family("beat_duration_seconds", Kind.HISTOGRAM, "From a beat to its answer.", buckets=CALLS_S),
    _family("redis_connects_total", Kind.COUNTER, "Connections opened; all but the first are reconnects."),
    _family("epoch", Kind.GAUGE, "The epoch that Redis has told."),
    _family("epoch_changes_total", Kind.COUNTER, "How often Redis has told another epoch."),
    _family(
        "wishes_total", Kind.COUNTER, "Turns wanted here, by how that was found: message or poll.", "found_by"
    ),
)


class AgentMetrics(Tally):
    """Counts what an agent does, in a registry of its own. `switchers` is asked at each scrape."""

    def __init__(
        self, settings: AgentSettings, version: str, switchers: Callable[[], Mapping[str, Switcher]]
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)  # before the others: what it sets at a scrape is told in the same
        self._made = Families(FAMILIES, self.registry, {"pool": settings.pool, "node": settings.node})
        self._switchers, self._half_s = switchers, settings.silent / 2
        self._answered_at, self._epoch = time.monotonic(), 0
        self._last: dict[str, Result] = {}
        self._set("build_info", 1, version=version)
        for name in ("beats_late_total", "redis_connects_total", "epoch_changes_total"):
            self._count(name, 0)
        for word in ("message", "poll"):
            self._count("wishes_total", 0, found_by=word)

    def describe(self) -> list[Metric]:
        """As a collector it has nothing of its own."""
        return []

    def collect(self) -> list[Metric]:
        """Count, for a scrape, the runs that have state here, by where it is."""
        for name, switcher in list(self._switchers().items()):
            states = Counter(stay.state for stay in list(switcher.at.page.stays.values()))
            for state in RunState:
                self._set("runs", states[state], slice=name, state=state)
        return []

    def told(self, result: Result) -> None:
        if self._last.get(result.slice) is result:
            return
        self._last[result.slice] = result
        outcome = "ready" if result.outcome == "READY" else result.what
        self._count("switches_total", slice=result.slice, outcome=outcome)
        self._observe("switch_duration_seconds", result.seconds, slice=result.slice)
        for one in result.steps:
            labels = {"step": str(one["step"]), "way": str(one["way"])}
            self._observe("switch_step_duration_seconds", float(one["seconds"]), **labels)
            self._count("switch_step_bytes_total", float(one["bytes"]), **labels)

    def answered(self, seconds: float) -> None:
        now = time.monotonic()
        if now - self._answered_at > self._half_s:
            self._count("beats_late_total")
        self._answered_at = now
        self._count("beats_total", outcome="answered")
        self._observe("beat_duration_seconds", seconds)

    def failed(self) -> None:
        self._count("beats_total", outcome="failed")

    def connected(self) -> None:
        self._count("redis_connects_total")

    def epoch(self, number: int) -> None:
        self._count("epoch_changes_total", 1 if self._epoch else 0)
        self._epoch = number
        self._set("epoch", number)

    def wished(self, found_by: str) -> None:
        self._count("wishes_total", found_by=found_by)

    def _count(self, name: str, by: float = 1, **labels: str) -> None:
        self._made.at(f"slicelock_agent_{name}", **labels).inc(by)

    def _observe(self, name: str, value: float, **labels: str) -> None:
        self._made.at(f"slicelock_agent_{name}", **labels).observe(value)

    def _set(self, name: str, value: float, **labels: str) -> None:
        self._made.at(f"slicelock_agent_{name}", **labels).set(value)


class Serving:
    """The agent's endpoint: metrics, whether its event loop lives, whether it is in touch with Redis."""

    def __init__(self, address: str, registry: CollectorRegistry, in_touch: Callable[[], bool]) -> None:
        self._loop, self._in_touch = asyncio.get_running_loop(), in_touch
        try:
            self._server = MetricsServer(
                listening_at(address, AGENT_METRICS), registry, self._healthy, self._ready
            )
        except CannotListen as failure:
            advice = f"Set another SLICELOCK_METRICS, for example {AGENT_METRICS}."
            raise ConfigurationError(str(failure), advice=advice) from None
        self.url = self._server.url

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def _healthy(self) -> str:
        alive = threading.Event()
        try:
            self._loop.call_soon_threadsafe(alive.set)
        except RuntimeError:
            return "the agent has ended"
        return "" if alive.wait(PATIENCE_S) else f"the agent's loop has not answered within {PATIENCE_S:g} s"

    def _ready(self) -> str:
        return self._healthy() or ("" if self._in_touch() else "Redis does not answer; turns go on")
