"""An entry of the pool's stream of events: what has happened, when, and to whom.

`docs/reference/events.md` lists the types and what each carries. Types and fields of other versions are kept
as they are: whoever reads events passes over what it does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from slicelock.words import clean, duration

LATEST_MS = 253_402_000_000_000  # in the year 9999, the last that dates can tell
LARGEST = 1e18  # what no figure here exceeds; whoever may write events may write anything
KEPT = 100_000
"""Events that a pool's stream keeps at least (`EVENTS` of the scripts): one with fewer was never trimmed."""
EVICTING = "evict"
"""The phase of the empty turns that the mode `always-evict` takes in the name of a job: nobody's work."""
GAP = "gap"
"""The type of an event that nobody wrote: its reader tells that entries before it are missing, and why."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One step of a switch on one node. `seconds` it took, `bytes` it moved."""

    step: str
    run: str
    way: str
    bytes: int
    seconds: float

    @property
    def gb_per_s(self) -> float:
        """10⁹ bytes a second; 0 when nothing was moved."""
        return min(self.bytes / self.seconds / 1e9, LARGEST) if self.bytes and self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `t_ms` is Redis' clock; `facts` are its other fields, each on one line and printable."""

    id: str
    type: str
    t_ms: int
    facts: Mapping[str, str]

    @classmethod
    def of(cls, id_: str, fields: Mapping[str, str]) -> Event:
        """Read a stream's entry; one that lacks its type or time gets `unknown` and the time of its id."""
        facts = dict(fields)
        if not "".join((*fields, *fields.values())).isprintable():
            facts = {clean(name): clean(value) for name, value in fields.items()}
        kind, time = facts.pop("type", "unknown"), facts.pop("t", "")
        t_ms = int(time) if _is_whole(time) else int(id_.partition("-")[0] or 0)
        return cls(id_, kind, min(t_ms, LATEST_MS), facts)

    @property
    def request(self) -> str:
        """The id of the request that it is about; empty when it is about none."""
        facts = self.facts
        if "run" in facts and "lane" in facts and "k" in facts:
            return f"{facts['run']}/{facts['lane']}/{facts['k']}"
        return facts.get("request", "")

    @property
    def slices(self) -> tuple[str, ...]:
        """The slice that it is about, or all the slices of its request."""
        named = self.facts.get("slice")
        return (named,) if named else tuple(self.facts.get("slices", "").split())

    @property
    def steps(self) -> tuple[StepFacts, ...]:
        """The steps of a switch that it tells of; none when they cannot be read."""
        return steps_of(self.facts.get("steps", ""))

    def text(self, name: str) -> str:
        """A field; empty when it is missing."""
        return self.facts.get(name, "")

    def number(self, name: str) -> float:
        """A field as a finite number; 0 when it is missing or none."""
        return number_of(self.facts.get(name, ""))

    def concerns(self, slice_: str) -> bool:
        """Whether it is about this slice, or about the whole pool."""
        return not self.slices or slice_ in self.slices

    def as_json(self) -> dict[str, Any]:
        """All of it, with numbers as numbers."""
        numbers = {name: _number(self.facts[name]) for name in NUMBERS if name in self.facts}
        told: dict[str, Any] = {"id": self.id, "type": self.type, "t_ms": self.t_ms, **self.facts, **numbers}
        if "slices" in told:
            told["slices"] = told["slices"].split()
        if "steps" in told:
            told["steps"] = [
                {name: getattr(one, name) for name in ("step", "run", "way", "bytes", "seconds")}
                | {"gb_per_s": round(one.gb_per_s, 3)}
                for one in self.steps
            ]
        return told


NUMBERS = ("k", "fence", "waited_ms", "held_ms", "bytes", "seconds", "busy", "priority", "epoch", "step_ms")


def clock_step(ms: float) -> str:
    """A step of the clock in words. A long one forward is what scripts see after nobody has called them."""
    if ms < 0:
        return f"the clock stepped back by {duration(-ms)}"
    return f"nothing called for {duration(ms)}, or the clock stepped forward"


def number_of(text: str) -> float:
    """A finite number between -10¹⁸ and 10¹⁸; 0 for what is none."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return max(-LARGEST, min(value, LARGEST)) if math.isfinite(value) else 0.0


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _number(text: str) -> int | float | str:
    if _is_whole(text.removeprefix("-")):  # a fence has more digits than a float
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def steps_of(text: str) -> tuple[StepFacts, ...]:
    """Read the field `steps`; none when it cannot be read."""
    if not text:
        return ()
    try:
        return tuple(_step(one) for one in cast(list[dict[str, Any]], json.loads(text)))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return ()


def _step(told: Mapping[str, Any]) -> StepFacts:
    return StepFacts(
        clean(str(told.get("step", ""))),
        clean(str(told.get("run", ""))),
        clean(str(told.get("way", ""))),
        int(_amount(told.get("bytes", 0))),
        _amount(told.get("seconds", 0)),
    )


def _amount(value: Any) -> float:
    """What a step took or moved; never less than nothing."""
    amount = float(value)
    return max(0.0, min(amount, LARGEST)) if math.isfinite(amount) else 0.0
