"""What became of a slice's time: figures for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest

from slicelock.history.causes import causes
from slicelock.history.episodes import Switch, Wait
from slicelock.history.fold import History, SliceHistory
from slicelock.history.sweep import Span, Window, sweep

LONGEST = 5
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class LongWait:
    """One of the longest waits. `causes`: seconds by what it waited for, the longest first."""

    request: str
    job: str
    asked_ms: int
    seconds: float
    outcome: str
    causes: dict[str, float]


@dataclass(frozen=True, slots=True)
class SliceFigures:
    """A slice's time. Seconds; shares of the window from 0 to 1. Each is defined in docs/reference/report.md.

    `utilisation`: percent, None when no device told it.
    """

    slice: str
    devices: int
    duty: float
    phases: dict[str, float]
    utilisation: float | None
    switches: int
    moving_switches: int
    switching_s: float
    bytes: int
    idle_waiting_s: float
    idle_waiting: dict[str, float] = field(default_factory=dict[str, float])
    longest_waits: tuple[LongWait, ...] = ()


def slice_figures(history: History, seen: SliceHistory, window: Window, devices: int) -> SliceFigures:
    """The figures of one slice in the window."""
    waits = [
        one for one in history.waits if seen.name in one.slices and window.touches(one.asked_ms, one.ended_ms)
    ]
    switches = [one for one in seen.switches if window.touches(one.began_ms, one.ended_ms)]
    phases: Counter[str] = Counter()
    for turn in seen.turns:
        phases[turn.phase or "(no phase)"] += window.length(turn.began_ms, turn.ended_ms)
    idle = idle_while_waiting(seen, waits, window)
    whole = max(window.length_ms, 1)
    return SliceFigures(
        slice=seen.name,
        devices=devices,
        duty=phases.total() / whole,
        phases={phase: length / whole for phase, length in phases.most_common() if length},
        utilisation=utilisation(seen.switches, window),
        switches=len(switches),
        moving_switches=sum(1 for one in switches if one.bytes),
        switching_s=sum(window.length(one.began_ms, one.ended_ms) for one in switches) / 1000,
        bytes=sum(one.bytes for one in switches),
        idle_waiting_s=idle.total() / 1000,
        idle_waiting={why: length / 1000 for why, length in idle.most_common() if length},
        longest_waits=tuple(longest(history, waits, window)),
    )


def longest(history: History, waits: Iterable[Wait], window: Window) -> Iterator[LongWait]:
    """The longest of these waits and what each was for, whole, even if they began before the window."""

    def length(one: Wait) -> int:
        return (one.ended_ms or window.end_ms) - one.asked_ms

    for one in nlargest(LONGEST, waits, key=length):
        if seconds := length(one) / 1000:
            why = causes(history, one, window.end_ms)
            yield LongWait(one.request, one.job, one.asked_ms, seconds, one.outcome or "waits", why)


def utilisation(switches: Iterable[Switch], window: Window) -> float | None:
    """The mean of what nodes told with their results, each for the time since the one before."""
    weight, total, before = 0, 0.0, dict[str, int]()
    for switch in switches:
        for node, done in switch.nodes.items():
            if done.busy is not None and window.begin_ms <= done.at_ms <= window.end_ms:
                since = done.at_ms - max(before.get(node, window.begin_ms), window.begin_ms)
                weight, total = weight + since, total + since * done.busy
            before[node] = done.at_ms
    return total / weight if weight else None


# ---------------------------------------------------------------- idle although somebody waits

REASONS = ("switching", "blocked", "draining", "settling", "kept")
"""What explains that a slice is idle although somebody waits for it; the first that holds."""


def idle_while_waiting(seen: SliceHistory, waits: Iterable[Wait], window: Window) -> Counter[str]:
    """For how long (ms) nobody held the slice although somebody waited for it, by the reason."""
    idle: Counter[str] = Counter()
    for length, present in sweep(_spans(seen, waits, window)):
        if "held" not in present and ("gathering" in present or "queued" in present or "several" in present):
            idle[_reason(present)] += length
    return idle


def _spans(seen: SliceHistory, waits: Iterable[Wait], window: Window) -> Iterator[Span]:
    for turn in seen.turns:
        yield (*window.clip(turn.began_ms, turn.ended_ms), "held")
    for switch in seen.switches:
        yield (*window.clip(switch.began_ms, switch.ended_ms), "switching")
    for one in seen.conditions:
        yield (*window.clip(one.began_ms, one.ended_ms), one.what)
    for wait in waits:
        complete = wait.complete_ms
        yield (*window.clip(wait.asked_ms, complete), "gathering")
        if complete is not None:
            what = "several" if len(wait.slices) > 1 else "queued"
            yield (*window.clip(complete, wait.ended_ms), what)


def _reason(present: dict[str, int]) -> str:
    for one in REASONS:
        if one in present:
            return one
    if "several" in present:
        return "other slices"
    return UNEXPLAINED if "queued" in present else "gathering"
