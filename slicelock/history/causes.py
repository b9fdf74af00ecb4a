"""What a request waited for, moment by moment."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from slicelock.history.episodes import Switch, Turn, Wait
from slicelock.history.fold import History, SliceHistory
from slicelock.history.sweep import Span, Window, sweep

OWN = "its own switch"
GATHERING = "its own members"
QUEUE = "its place in the queue"
ORDER = ("blocked", "draining", "settling", "kept", "held by", "switching to")
"""Of several causes at once, over all of its slices, the first counts."""


def causes(history: History, wait: Wait, now_ms: int) -> dict[str, float]:
    """Seconds of a wait by their cause, the longest first. They add up to the whole wait."""
    window = Window(wait.asked_ms, wait.ended_ms or now_ms)
    found: Counter[str] = Counter()
    for length, present in sweep(_spans(history, wait, window)):
        found[_cause(present)] += length
    return {why: length / 1000 for why, length in found.most_common() if length}


def _spans(history: History, wait: Wait, window: Window) -> Iterator[Span]:
    complete = wait.complete_ms
    yield (*window.clip(wait.asked_ms, complete), GATHERING)
    if complete is not None:
        yield (*window.clip(complete, wait.ended_ms), QUEUE)
    if wait.granted_ms:
        yield (*window.clip(wait.granted_ms, wait.ended_ms), OWN)
    for name in wait.slices:
        if seen := history.slices.get(name):
            yield from _of_slice(seen, wait, window)


def _of_slice(seen: SliceHistory, wait: Wait, window: Window) -> Iterator[Span]:
    for one in seen.conditions:
        if window.touches(one.began_ms, one.ended_ms):
            what = f"{one.what}: {one.reason}" if one.reason and one.what == "blocked" else one.what
            yield (*window.clip(one.began_ms, one.ended_ms), what)
    for turn in _within(seen.turns, window):
        yield (*window.clip(turn.began_ms, turn.ended_ms), f"held by {turn.job or 'somebody'}")
    for switch in _within(seen.switches, window):
        if switch.request != wait.request:
            yield (*window.clip(switch.began_ms, switch.ended_ms), f"switching to {switch.job or 'somebody'}")
        else:
            yield (*window.clip(switch.began_ms, switch.ended_ms), OWN)


def _within(those: Sequence[Turn] | Sequence[Switch], window: Window) -> Iterator[Turn | Switch]:
    """Those that touch the window, newest first; they follow one another."""
    last = bisect_right(those, window.end_ms, key=lambda one: one.began_ms)
    for at in range(last - 1, -1, -1):
        if not window.touches(those[at].began_ms, those[at].ended_ms):
            return
        yield those[at]


def _cause(present: dict[str, int]) -> str:
    if GATHERING in present:
        return GATHERING
    if OWN in present:
        return OWN
    for kind in ORDER:
        for one in present:
            if one.startswith(kind):
                return one
    return QUEUE
