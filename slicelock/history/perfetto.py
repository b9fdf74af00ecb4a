"""A history as trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.

A slice is a process, and what its jobs do are its threads: turns, waits, and the switches. Arrows lead from
the end of a job's turn to the beginning of the next job's. Times are µs after the beginning of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from slicelock.history.episodes import Condition, Switch, Turn, Wait
from slicelock.history.fold import History, SliceHistory
from slicelock.history.report import Report
from slicelock.history.sweep import Window

Trace = dict[str, Any]
POOL = 1
"""The process that stands for the whole pool; slices follow."""


def trace(history: History, report: Report, pool: str) -> Trace:
    """The whole trace, in the JSON object format."""
    events = [_event("M", "process_name", 0, POOL, 0, args={"name": f"pool {pool}"})]
    events += [
        _event("i", one.type, one.at_ms - report.window.begin_ms, POOL, 0, s="g", args={"what": one.text})
        for one in history.marks
        if report.window.touches(one.at_ms, one.at_ms)
    ]
    for pid, (_, seen) in enumerate(sorted(history.slices.items()), POOL + 1):
        waits = [one for one in history.waits if seen.name in one.slices]
        events += _Slice(pid, seen, waits, report.window).events()
    about = {"pool": pool, "begin_ms": report.window.begin_ms, "saved_share": round(report.saved_share, 4)}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}


class _Slice:
    def __init__(self, pid: int, seen: SliceHistory, waits: list[Wait], window: Window) -> None:
        self._pid, self._seen, self._window = pid, seen, window
        self._waits = [one for one in waits if window.touches(one.asked_ms, one.ended_ms)]
        self._turns = [
            (one, self._turn(one)) for one in seen.turns if window.touches(one.began_ms, one.ended_ms)
        ]
        self._threads = 0

    def events(self) -> Iterator[Trace]:
        yield _event("M", "process_name", 0, self._pid, 0, args={"name": f"slice {self._seen.name}"})
        yield from self._on_threads("switches", map(self._switch, self._present(self._seen.switches)))
        yield from self._on_threads("conditions", map(self._condition, self._present(self._seen.conditions)))
        for job in sorted({one.job for one in (*(turn for turn, _ in self._turns), *self._waits)}):
            yield from self._on_threads(job, [span for one, span in self._turns if one.job == job])
            waits = [self._wait(one) for one in self._waits if one.job == job]
            yield from self._on_threads(f"{job} waits", waits)
        yield from self._hand_overs()
        yield from self._queue()

    def _on_threads(self, name: str, spans: Iterable[Trace]) -> Iterator[Trace]:
        """Spans on a thread of their own; those that overlap go to further ones, since viewers take what
        begins within another for a part of it."""
        ends: dict[int, int] = {}
        for span in sorted(spans, key=lambda one: one["ts"]):
            free = next((thread for thread, end in ends.items() if end <= span["ts"]), 0)
            if not free:
                free = self._threads = self._threads + 1
                number = f" {len(ends) + 1}" if ends else ""
                yield from self._thread(free, f"{name}{number}")
            ends[free] = span["ts"] + span["dur"]
            span["tid"] = free
            yield span

    def _thread(self, thread: int, name: str) -> Iterator[Trace]:
        yield _event("M", "thread_name", 0, self._pid, thread, args={"name": name})
        yield _event("M", "thread_sort_index", 0, self._pid, thread, args={"sort_index": thread})

    def _present(self, those: list[Any]) -> Iterator[Any]:
        return (one for one in those if self._window.touches(one.began_ms, one.ended_ms))

    def _span(self, began: int, ended: int | None, name: str, **more: Any) -> Trace:
        begin, end = self._window.clip(began, ended)
        return _event(
            "X", name, begin - self._window.begin_ms, self._pid, 0, dur=(end - begin) * 1000, **more
        )

    def _turn(self, one: Turn) -> Trace:
        args = {"request": one.request, "run": one.run, "lane": one.lane, "outcome": one.outcome}
        return self._span(one.began_ms, one.ended_ms, one.phase or "turn", cat="turn", args=args)

    def _wait(self, one: Wait) -> Trace:
        return self._span(one.asked_ms, one.ended_ms, "wait", cat="wait", args=_wait_facts(one))

    def _switch(self, one: Switch) -> Trace:
        name = f"{one.left or '?'} → {one.job}" if one.left != one.job else one.job
        return self._span(one.began_ms, one.ended_ms, name, cat="switch", args=_switch_facts(one))

    def _condition(self, one: Condition) -> Trace:
        args = {"node": one.node, "reason": one.reason}
        return self._span(one.began_ms, one.ended_ms, one.what, cat="condition", args=args)

    def _hand_overs(self) -> Iterator[Trace]:
        """An arrow hangs on spans: it begins within the one that ends, and ends where the next one begins."""
        for number, ((before, left), (after, right)) in enumerate(pairwise(self._turns)):
            if before.job == after.job or before.ended_ms is None or not left["dur"] or not right["dur"]:
                continue
            arrow = {"name": "hand-over", "cat": "hand-over", "id": f"{self._pid}.{number}", "pid": self._pid}
            yield {"ph": "s", "ts": left["ts"] + left["dur"] - 1, "tid": left["tid"], **arrow}
            yield {"ph": "f", "ts": right["ts"], "tid": right["tid"], "bp": "e", **arrow}

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


def _wait_facts(one: Wait) -> dict[str, Any]:
    gathering = (one.complete_ms or one.asked_ms) - one.asked_ms
    facts = {"request": one.request, "slices": " ".join(one.slices), "outcome": one.outcome}
    return facts | {"gathering_ms": gathering, "put_back": one.requeued}


def _switch_facts(one: Switch) -> dict[str, Any]:
    facts: dict[str, Any] = {"request": one.request, "outcome": one.outcome, "bytes": one.bytes}
    for node, done in one.nodes.items():
        for step in done.steps:
            facts[f"{node} {step.step} {step.run}"] = (
                f"{step.bytes} B in {step.seconds:.3f} s, {step.gb_per_s:.2f} GB/s"
            )
    return facts
