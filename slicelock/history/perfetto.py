"""A history as trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.

A slice is a process, and what its jobs do are its threads: turns, waits, and the switches. Arrows lead from
the end of a job's turn to the beginning of the next job's. Times are µs after the beginning of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from slicelock.history.fold import History, SliceHistory
from slicelock.history.parts import Switch, Turn, Wait
from slicelock.history.report import Report
from slicelock.history.sweep import Window

Trace = dict[str, Any]
SWITCHES, CONDITIONS, FIRST_JOB = 1, 2, 3
"""Threads that every slice has; each job has two more: one for its turns, one for its waits."""


def trace(history: History, report: Report, pool: str) -> Trace:
    """The whole trace, in the JSON object format."""
    events: list[Trace] = []
    for pid, (_, seen) in enumerate(sorted(history.slices.items()), 1):
        waits = [one for one in history.waits if seen.name in one.slices]
        events += _Slice(pid, seen, waits, report.window).events()
    events += [
        _event("i", one.type, one.at_ms - report.window.begin_ms, 0, 0, s="g", args={"what": one.text})
        for one in history.marks
        if report.window.touches(one.at_ms, one.at_ms)
    ]
    about = {"pool": pool, "begin_ms": report.window.begin_ms, "saved_share": round(report.saved_share, 4)}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}


class _Slice:
    def __init__(self, pid: int, seen: SliceHistory, waits: list[Wait], window: Window) -> None:
        self._pid, self._seen, self._window = pid, seen, window
        self._waits = [one for one in waits if window.touches(one.asked_ms, one.ended_ms)]
        self._turns = [one for one in seen.turns if window.touches(one.began_ms, one.ended_ms)]
        jobs = sorted({one.job for one in (*self._turns, *self._waits)})
        self._threads = {job: FIRST_JOB + 2 * number for number, job in enumerate(jobs)}

    def events(self) -> Iterator[Trace]:
        yield from self._names()
        yield from map(self._turn, self._turns)
        for one in self._waits:
            thread = self._threads[one.job] + 1
            yield self._span(one.asked_ms, one.ended_ms, thread, "wait", cat="wait", args=_wait(one))
        for one in self._seen.switches:
            if self._window.touches(one.began_ms, one.ended_ms):
                name = f"{one.left or '?'} → {one.job}" if one.left != one.job else one.job
                times = (one.began_ms, one.ended_ms)
                yield self._span(*times, SWITCHES, name, cat="switch", args=_switch(one))
        for one in self._seen.conditions:
            if self._window.touches(one.began_ms, one.ended_ms):
                args = {"node": one.node, "reason": one.reason}
                times = (one.began_ms, one.ended_ms)
                yield self._span(*times, CONDITIONS, one.what, cat="condition", args=args)
        yield from self._hand_overs()
        yield from self._queue()

    def _names(self) -> Iterator[Trace]:
        threads = {SWITCHES: "switches", CONDITIONS: "conditions"}
        for job, thread in self._threads.items():
            threads |= {thread: job, thread + 1: f"{job} waits"}
        yield _event("M", "process_name", 0, self._pid, 0, args={"name": f"slice {self._seen.name}"})
        for thread, name in threads.items():
            yield _event("M", "thread_name", 0, self._pid, thread, args={"name": name})
            yield _event("M", "thread_sort_index", 0, self._pid, thread, args={"sort_index": thread})

    def _span(self, began: int, ended: int | None, thread: int, name: str, **more: Any) -> Trace:
        begin, end = self._window.clip(began, ended)
        at = begin - self._window.begin_ms
        return _event("X", name, at, self._pid, thread, dur=(end - begin) * 1000, **more)

    def _turn(self, one: Turn) -> Trace:
        args = {"request": one.request, "run": one.run, "lane": one.lane, "outcome": one.outcome}
        thread = self._threads[one.job]
        return self._span(one.began_ms, one.ended_ms, thread, one.phase or "turn", cat="turn", args=args)

    def _hand_overs(self) -> Iterator[Trace]:
        for number, (before, after) in enumerate(pairwise(self._turns)):
            if before.job == after.job or before.ended_ms is None:
                continue
            # An arrow hangs on spans, so it begins within the first one.
            begins = max(before.ended_ms - 1, before.began_ms) - self._window.begin_ms
            arrow = {"cat": "hand-over", "id": f"{self._pid}.{number}"}
            yield _event("s", "hand-over", max(begins, 0), self._pid, self._threads[before.job], **arrow)
            at = max(after.began_ms - self._window.begin_ms, 0)
            yield _event("f", "hand-over", at, self._pid, self._threads[after.job], bp="e", **arrow)

    def _queue(self) -> Iterator[Trace]:
        changes = sorted(_changes(self._waits, self._window), key=lambda one: (one[0], -one[1]))
        waiting = 0
        for at, change in changes:
            waiting += change
            when = at - self._window.begin_ms
            yield _event("C", "waiting", when, self._pid, 0, args={"requests": waiting})


def _changes(waits: Iterable[Wait], window: Window) -> Iterator[tuple[int, int]]:
    for one in waits:
        begin, end = window.clip(one.asked_ms, one.ended_ms)
        yield begin, 1
        if one.ended_ms is not None and one.ended_ms <= window.end_ms:
            yield end, -1


def _event(kind: str, name: str, at_ms: int, pid: int, thread: int, **more: Any) -> Trace:
    return {"ph": kind, "name": name, "ts": at_ms * 1000, "pid": pid, "tid": thread, **more}


def _wait(one: Wait) -> dict[str, Any]:
    gathering = (one.complete_ms or one.asked_ms) - one.asked_ms
    facts = {"request": one.request, "slices": " ".join(one.slices), "outcome": one.outcome}
    return facts | {"gathering_ms": gathering, "put_back": one.requeued}


def _switch(one: Switch) -> dict[str, Any]:
    facts: dict[str, Any] = {"request": one.request, "outcome": one.outcome, "bytes": one.bytes}
    for node, done in one.nodes.items():
        for step in done.steps:
            facts[f"{node} {step.step} {step.run}"] = (
                f"{step.bytes} B in {step.seconds:.3f} s, {step.gb_per_s:.2f} GB/s"
            )
    return facts
