"""What a pool's events add up to: counters and histograms, from the exporter's start on."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from slicelock.events import GAP, Event
from slicelock.metrics.families import SWITCHES_S, WAITS_S, Capped, Families, Family, Kind, Metric

SLICE, JOB, NODE = ("pool", "slice"), ("pool", "slice", "job"), ("pool", "slice", "node")
STEP = ("pool", "node", "step", "way")
MOST = {"slice": 1000, "node": 1000, "outcome": 50, "kind": 50, "step": 50, "way": 50}
"""Different values of a label in one exporter; there are fewer where nobody means harm."""


def _counter(name: str, meaning: str, labels: tuple[str, ...] = ("pool",)) -> Family:
    return Family(f"slicelock_{name}", Kind.COUNTER, meaning, labels)


def _histogram(name: str, meaning: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Family:
    return Family(f"slicelock_{name}", Kind.HISTOGRAM, meaning, labels, buckets)


COUNTED = (
    _counter(
        "turns_total",
        "Turns that have ended, by outcome; `expired`: the lease was not renewed.",
        (*JOB, "outcome"),
    ),
    _counter(
        "requests_unserved_total", "Requests that ended before their turn, by outcome.", (*JOB, "outcome")
    ),
    _counter(
        "requeues_total",
        "Switches that could not be finished; their requests went back to their places.",
        SLICE,
    ),
    _counter("switches_total", "Switches that have ended on a node: ready or failed.", (*NODE, "outcome")),
    _counter("switch_step_bytes_total", "Bytes moved by steps of switches, by what moved them.", STEP),
    _counter("blocks_total", "How often the slice was blocked, by reason.", (*SLICE, "kind")),
    _counter("node_silences_total", "How often the node was not heard of in time.", ("pool", "node")),
    _counter("reassertions_total", "Turns that Redis had lost and that were held again.", SLICE),
    _counter("epochs_total", "New epochs: restarts and failovers of Redis."),
    _counter(
        "clock_steps_total",
        "Steps of Redis' clock that counted as nothing; pauses of all callers are among them.",
    ),
    _counter("event_gaps_total", "Places in the stream of events where some are missing."),
    _histogram("turn_wait_seconds", "How long requests have waited for their turns.", JOB, WAITS_S),
    _histogram("turn_duration_seconds", "How long turns have lasted.", JOB, WAITS_S),
    _histogram(
        "switch_duration_seconds", "From a node's first sight of a switch to its result.", NODE, SWITCHES_S
    ),
    _histogram("switch_step_duration_seconds", "How long steps of switches took.", STEP, SWITCHES_S),
)


class StreamMetrics:
    """Takes events in order."""

    def __init__(self, pool: str, registry: CollectorRegistry, jobs: Capped) -> None:
        self._made, self._jobs = Families(COUNTED, registry, {"pool": pool}), jobs
        self._known = {name: Capped(most) for name, most in MOST.items()}
        self._takers: dict[str, Callable[[Event], None]] = {
            "held": self._held,
            "ended": self._ended,
            "ready": self._switched,
            "failed": self._switched,
            "requeued": lambda event: self._each(event, "requeues_total"),
            "reasserted": lambda event: self._each(event, "reassertions_total"),
            "blocked": lambda event: self._each(event, "blocks_total", kind=event.text("kind")),
            "silent": lambda event: self._count("node_silences_total", 1, node=event.text("node")),
            "epoch": lambda event: self._count("epochs_total"),
            "clock": lambda event: self._count("clock_steps_total"),
            GAP: lambda event: self._count("event_gaps_total"),
        }
        for name in ("epochs_total", "clock_steps_total", "event_gaps_total"):
            self._count(name, by=0)  # so that their first rise shows as one

    def take(self, event: Event) -> None:
        """Count one event; types that are not known are passed over."""
        if taker := self._takers.get(event.type):
            taker(event)

    def _at(self, name: str, **labels: str) -> Metric:
        """Events are written by whoever may write; what they name becomes `other` where it is too much."""
        known = {label: self._known[label](value) for label, value in labels.items() if label in self._known}
        return self._made.at(name, **labels | known)

    def _count(self, name: str, by: float = 1, **labels: str) -> None:
        self._at(f"slicelock_{name}", **labels).inc(by)

    def _observe(self, name: str, value: float, **labels: str) -> None:
        self._at(f"slicelock_{name}", **labels).observe(max(value, 0.0))

    def _each(self, event: Event, name: str, kind: str = "") -> None:
        labels = {"kind": kind} if kind else {}
        for slice_ in event.slices:
            self._count(name, 1, slice=slice_, **labels)

    def _jobs_of(self, event: Event) -> list[dict[str, str]]:
        job = self._jobs(event.text("job"))
        return [{"slice": slice_, "job": job} for slice_ in event.slices]

    def _held(self, event: Event) -> None:
        for labels in self._jobs_of(event):
            self._observe("turn_wait_seconds", event.number("waited_ms") / 1000, **labels)

    def _ended(self, event: Event) -> None:
        outcome, was_held = event.text("outcome"), "held_ms" in event.facts
        for labels in self._jobs_of(event):
            if was_held:
                self._count("turns_total", 1, **labels, outcome=outcome)
                self._observe("turn_duration_seconds", event.number("held_ms") / 1000, **labels)
            else:
                self._count("requests_unserved_total", 1, **labels, outcome=outcome)

    def _switched(self, event: Event) -> None:
        place = {"slice": event.text("slice"), "node": event.text("node")}
        self._count("switches_total", 1, **place, outcome=event.type)
        self._observe("switch_duration_seconds", event.number("seconds"), **place)
        for one in event.steps:
            step = {"node": place["node"], "step": one.step, "way": one.way}
            self._observe("switch_step_duration_seconds", one.seconds, **step)
            self._count("switch_step_bytes_total", one.bytes, **step)
