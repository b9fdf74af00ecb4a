"""A pool's present state as metrics: made from one picture for each scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from prometheus_client.core import GaugeMetricFamily

from slicelock.errors import SlicelockError
from slicelock.metrics.families import Capped, Family, Kind
from slicelock.picture import NodeView, Picture, SliceView
from slicelock.states import SliceState

BLOCKS = ("silent", "evict", "fence", "drain")
"""Why a slice can be blocked."""
SLICE, NODE = ("pool", "slice"), ("pool", "node")
DEVICE = ("pool", "slice", "node", "device")


def _gauge(name: str, meaning: str, labels: tuple[str, ...] = ("pool",)) -> Family:
    return Family(f"slicelock_{name}", Kind.GAUGE, meaning, labels)


GAUGES = (
    _gauge("up", "Whether the last question to the pool was answered (1) or not (0)."),
    _gauge("status_duration_seconds", "How long the pool's answer took."),
    _gauge("epoch", "The number of the pool's epoch: it rises with each restart or failover of Redis."),
    _gauge(
        "slice_state",
        "Whether the slice is free, switching or held: 1 for its present state.",
        (*SLICE, "state"),
    ),
    _gauge("slice_settling", "Whether the slice waits for its nodes after a new epoch.", SLICE),
    _gauge("slice_kept", "Whether the slice is kept for a turn that its nodes show.", SLICE),
    _gauge("slice_blocked", "Whether the slice cannot change hands, by reason.", (*SLICE, "kind")),
    _gauge("slice_holder", "1 for the job that has the slice.", (*SLICE, "job")),
    _gauge("turn_age_seconds", "How long the present turn has lasted.", SLICE),
    _gauge("lease_remaining_seconds", "How long the present turn's lease still is.", SLICE),
    _gauge("queue_depth_requests", "Requests that wait for the slice.", SLICE),
    _gauge("queue_head_wait_seconds", "How long the request that is next has waited.", SLICE),
    _gauge("gathering_requests", "Requests whose members have not all asked."),
    _gauge("agent_age_seconds", "Time since the node's agent was last heard of.", NODE),
    _gauge("agent_silent", "Whether the node counts as silent.", NODE),
    _gauge("agent_info", "1, with the version of the node's agent.", (*NODE, "version")),
    _gauge("device_memory_used_bytes", "Memory in use on the device.", DEVICE),
    _gauge("device_memory_bytes", "Memory of the device.", DEVICE),
    _gauge("device_busy_ratio", "How busy the device is, where it tells.", DEVICE),
)
Sample = tuple[str, tuple[str, ...], float]


class PoolCollector:
    """Asks for a picture at each scrape. When none can be had, only `slicelock_up` is told, as 0."""

    def __init__(self, pool: str, look: Callable[[], Picture], jobs: Capped) -> None:
        self._pool, self._look, self._jobs = pool, look, jobs

    def describe(self) -> list[GaugeMetricFamily]:
        """What there is, without asking for it."""
        return [_family(one) for one in GAUGES]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families with their present values."""
        families = {one.name: _family(one) for one in GAUGES}
        for name, labels, value in self._samples():
            families[f"slicelock_{name}"].add_metric([self._pool, *labels], value)
        return [one for one in families.values() if one.samples]

    def _samples(self) -> Iterator[Sample]:
        begun = time.monotonic()
        try:
            seen = self._look()
        except SlicelockError:
            yield "up", (), 0
            return
        yield "up", (), 1
        yield "status_duration_seconds", (), time.monotonic() - begun
        yield "epoch", (), seen.epoch
        yield "gathering_requests", (), len(seen.gathering)
        for one in seen.slices:
            yield from self._slice(one)
        for node in seen.nodes:
            yield from _node(node)

    def _slice(self, one: SliceView) -> Iterator[Sample]:
        at = (one.name,)
        yield from (("slice_state", (*at, state), one.state == state) for state in SliceState)
        yield "slice_settling", at, one.settling
        yield "slice_kept", at, bool(one.kept)
        blocked = {str(why.get("kind", "")) for why in one.blocked.values()}
        yield from (("slice_blocked", (*at, kind), kind in blocked) for kind in BLOCKS)
        yield "queue_depth_requests", at, one.queued
        yield "queue_head_wait_seconds", at, one.queue[0].waited_ms / 1000 if one.queue else 0
        if one.holder and one.holder.state == SliceState.HELD:
            yield "slice_holder", (*at, self._jobs(one.holder.job)), 1
            yield "turn_age_seconds", at, one.holder.held_ms / 1000
            yield "lease_remaining_seconds", at, max(one.holder.lease_left_ms, 0) / 1000


def _node(node: NodeView) -> Iterator[Sample]:
    at = (node.name,)
    if node.beat_age_ms >= 0:
        yield "agent_age_seconds", at, node.beat_age_ms / 1000
        yield "agent_info", (*at, node.version), 1
    yield "agent_silent", at, node.silent
    for slice_, report in node.reports.items():
        told = cast(Mapping[str, Mapping[str, Any]], dict(report.get("devices") or {}))
        for device, facts in told.items():
            yield from _device((slice_, node.name, device), facts)


def _device(at: tuple[str, ...], facts: Mapping[str, Any]) -> Iterator[Sample]:
    yield "device_memory_used_bytes", at, float(facts.get("used") or 0)
    yield "device_memory_bytes", at, float(facts.get("total") or 0)
    if (busy := facts.get("busy")) is not None:
        yield "device_busy_ratio", at, float(busy) / 100


def _family(one: Family) -> GaugeMetricFamily:
    return GaugeMetricFamily(one.name, one.help, labels=one.labels)
