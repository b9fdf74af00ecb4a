"""What viewers see: the picture that the `status` script returns, as frozen data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from slicelock.words import clean

ALL_NODES = "*"  # stands for a node where a slice is blocked as a whole


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request that waits or has its turn. Times in ms before now."""

    id: str
    run: str
    job: str
    lane: str
    k: int
    state: str
    phase: str
    priority: int
    slices: tuple[str, ...]
    members: int
    joined: int
    waited_ms: int
    held_ms: int
    lease_left_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """An agent as the pool knows it."""

    name: str
    beat_age_ms: int
    silent: bool
    version: str
    agent: str
    """Which one it is: its boot id, journal and host."""
    slices: tuple[str, ...]
    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


@dataclass(frozen=True, slots=True)
class SliceView:
    """A slice: who has it, who waits, and what is wrong with it."""

    name: str
    state: str
    fence: int
    nodes: Mapping[str, tuple[str, ...]]
    settling: bool
    blocked: Mapping[str, Mapping[str, Any]]
    kept: str
    holder: RequestView | None
    queue: tuple[RequestView, ...]
    queued: int
    since_ms: int
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def draining(self) -> str:
        """Why an operator lets nothing new start here; empty: nobody does."""
        return str(self.blocked.get(ALL_NODES, {}).get("reason", ""))

    @property
    def troubles(self) -> Mapping[str, Mapping[str, Any]]:
        """What is wrong, by node; that the slice is draining is not."""
        return {node: why for node, why in self.blocked.items() if node != ALL_NODES}


@dataclass(frozen=True, slots=True)
class Picture:
    """One consistent picture of a pool."""

    pool: str
    epoch: int
    now_ms: int
    slices: tuple[SliceView, ...]
    nodes: tuple[NodeView, ...]
    gathering: tuple[RequestView, ...]

    @classmethod
    def of(cls, pool: str, raw: Mapping[str, Any]) -> Picture:
        """Build the picture from the `status` script's JSON; all texts in it become printable."""
        raw = _cleaned(raw)
        return cls(
            pool=pool,
            epoch=int(raw["epoch"]),
            now_ms=int(raw["now_ms"]),
            slices=tuple(_slice(item) for item in _items(raw["slices"])),
            nodes=tuple(_node(item) for item in _items(raw["nodes"])),
            gathering=tuple(_request(item) for item in _items(raw["gathering"])),
        )


def _cleaned(raw: Any) -> Any:
    if isinstance(raw, str):
        return clean(raw)
    if isinstance(raw, Mapping):
        return {clean(name): _cleaned(value) for name, value in cast("Mapping[str, Any]", raw).items()}
    return [_cleaned(one) for one in cast("list[Any]", raw)] if isinstance(raw, list) else raw


def _items(raw: object) -> list[dict[str, Any]]:
    # Lua's JSON cannot tell an empty list from an empty object.
    return cast(list[dict[str, Any]], raw) if isinstance(raw, list) else []


def _request(raw: Mapping[str, Any]) -> RequestView:
    numbers = {
        name: int(raw[name])
        for name in ("k", "priority", "members", "joined", "waited_ms", "held_ms", "lease_left_ms")
    }
    texts = {name: str(raw[name]) for name in ("id", "run", "job", "lane", "state", "phase", "reason")}
    return RequestView(slices=tuple(raw["slices"].split()), **texts, **numbers)  # type: ignore[arg-type]


def _node(raw: Mapping[str, Any]) -> NodeView:
    return NodeView(
        name=raw["name"],
        beat_age_ms=int(raw["beat_age_ms"]),
        silent=raw["silent"] == "1",
        version=raw["version"],
        agent=raw["agent"],
        slices=tuple(raw["slices"].split()),
        reports={name: _report(told) for name, told in dict(raw["reports"]).items()},
    )


def _report(told: object) -> dict[str, Any]:
    """The script passes an agent's JSON on as text; recorded pictures have it as an object."""
    return _cleaned(json.loads(told) if isinstance(told, str) else told)


def _slice(raw: Mapping[str, Any]) -> SliceView:
    holder = raw.get("holder")
    return SliceView(
        name=raw["name"],
        state=raw["state"],
        fence=int(raw["fence"]),
        nodes={node: tuple(devices.split()) for node, devices in dict(raw["nodes"]).items()},
        settling=raw["settling"] == "1",
        blocked=dict(raw["blocked"]),
        kept=raw["kept"],
        holder=_request(holder) if holder else None,
        queue=tuple(_request(item) for item in _items(raw["queue"])),
        queued=int(raw["queued"]),
        since_ms=int(raw["since_ms"]),
        settings=dict(raw["settings"]),
    )
