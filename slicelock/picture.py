"""What viewers see: the picture that the `status` script returns, as frozen data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from slicelock.errors import StoreError
from slicelock.states import SliceState
from slicelock.words import clean

ALL_NODES = "*"  # stands for a node where a slice is blocked as a whole
SENSELESS_REMEDY = "Somebody has written it past the scripts; the runbook says how to remove it."
STATES = frozenset[str](SliceState)
T = TypeVar("T")


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
    """One consistent picture of a pool. `senseless`: records that are left out, and why; a slice whose
    holder or waiters are, is there without them."""

    pool: str
    epoch: int
    now_ms: int
    slices: tuple[SliceView, ...]
    nodes: tuple[NodeView, ...]
    gathering: tuple[RequestView, ...]
    senseless: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, pool: str, raw: Mapping[str, Any]) -> Picture:
        """Build the picture from the `status` script's JSON; all texts in it become printable.

        A client may write records past the scripts; one that makes no sense harms no view of the others.
        StoreError when the pool's own record is such a one.
        """
        reader = _Reader()
        try:
            epoch, now_ms = int(raw["epoch"]), int(raw["now_ms"])
        except SENSELESS as failure:
            raise StoreError(
                f"The record meta of pool {pool} makes no sense: {_why(failure)}.", advice=SENSELESS_REMEDY
            ) from None
        slices = reader.all("slice", raw["slices"], reader.slice)
        nodes = reader.all("node", raw["nodes"], _node)
        gathering = reader.all("request", raw["gathering"], _request)
        return cls(pool, epoch, now_ms, slices, nodes, gathering, reader.senseless)


SENSELESS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


def _why(failure: Exception) -> str:
    return f"it has no {failure}" if isinstance(failure, KeyError) else clean(str(failure))


class _Reader:
    """Reads views, and notes which records make no sense."""

    def __init__(self) -> None:
        self.senseless: dict[str, str] = {}

    def all(self, kind: str, raw: object, view: Callable[[dict[str, Any]], T]) -> tuple[T, ...]:
        read = (self.one(kind, item, view) for item in _items(raw))
        return tuple(one for one in read if one is not None)

    def one(self, kind: str, raw: Any, view: Callable[[dict[str, Any]], T]) -> T | None:
        try:
            facts = _mapping(_cleaned(raw))
            if why := facts.get("senseless"):
                raise ValueError(why)
            return view(facts)
        except SENSELESS as failure:
            facts = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
            name = facts.get("name") or facts.get("id") or "of no name"
            self.senseless[clean(f"{kind} {name}")] = _why(failure)
            return None

    def slice(self, raw: dict[str, Any]) -> SliceView:
        holder = raw.get("holder")
        return SliceView(
            name=raw["name"],
            state=_among(STATES, raw["state"]),
            fence=int(raw["fence"]),
            nodes={node: tuple(devices.split()) for node, devices in _mapping(raw["nodes"]).items()},
            settling=raw["settling"] == "1",
            blocked={node: _block(why) for node, why in _told(raw["blocked"]).items()},
            kept=str(raw["kept"]),
            holder=self.one("request", holder, _request) if holder else None,
            queue=self.all("request", raw["queue"], _request),
            queued=int(raw["queued"]),
            since_ms=max(0, int(raw["since_ms"])),
            settings=_told(raw["settings"]),
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


def _mapping(raw: object) -> dict[str, Any]:
    # An empty object may have become an empty list in Lua.
    if raw and not isinstance(raw, Mapping):
        raise TypeError(f"{raw!r:.80} is no object")
    return dict(cast(Mapping[str, Any], raw or {}))


def _block(raw: object) -> dict[str, Any]:
    why = _mapping(raw)
    if not isinstance(why.get("reason", ""), str):
        raise TypeError(f"what blocks it, {why['reason']!r:.80}, is no text")
    return why


def _among(known: frozenset[str], word: str) -> str:
    if word not in known:
        raise ValueError(f"{word!r:.80} is none of {', '.join(sorted(known))}")
    return word


def _request(raw: Mapping[str, Any]) -> RequestView:
    numbers = {name: int(raw[name]) for name in ("k", "priority", "members", "joined", "lease_left_ms")}
    # Redis' clock may have been ahead for a moment.
    numbers |= {name: max(0, int(raw[name])) for name in ("waited_ms", "held_ms")}
    texts = {name: str(raw[name]) for name in ("id", "run", "job", "lane", "state", "phase", "reason")}
    return RequestView(slices=tuple(raw["slices"].split()), **texts, **numbers)  # type: ignore[arg-type]


def _node(raw: Mapping[str, Any]) -> NodeView:
    return NodeView(
        name=raw["name"],
        beat_age_ms=int(raw["beat_age_ms"]),
        silent=raw["silent"] == "1",
        version=str(raw["version"]),
        agent=str(raw["agent"]),
        slices=tuple(raw["slices"].split()),
        reports={name: _report(told) for name, told in _mapping(raw["reports"]).items()},
    )


def _told(told: object) -> dict[str, Any]:
    """The script passes on JSON as text; recorded pictures have it as an object."""
    return _mapping(_cleaned(json.loads(told) if isinstance(told, str) else told))


def _report(told: object) -> dict[str, Any]:
    report = _told(told)
    for what in ("loaded", "saved"):
        if not isinstance(report.get(what) or [], list):
            raise TypeError(f"what is {what} is no list")
    for facts in _mapping(report.get("devices")).values():
        _check_numbers(facts, "used", "total", "busy")
    _check_numbers(report.get("progress"), "moved", "bytes", "seconds")
    return report


def _check_numbers(raw: object, *names: str) -> None:
    facts = _mapping(raw)
    for name in names:
        if not isinstance(facts.get(name) or 0, (int, float)):
            raise TypeError(f"{name} {facts[name]!r:.80} is no number")
