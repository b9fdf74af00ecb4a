"""A history as columns of numbers, small enough for a page: times are ms after the beginning, -1 is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from slicelock.history.episodes import Condition, Done, Switch, Turn, Wait
from slicelock.history.fold import History, SliceHistory
from slicelock.history.report import Report
from slicelock.history.sweep import Window

NONE = -1
T = TypeVar("T", Turn, Switch, Condition)


class Names:
    """Texts that occur often, each told once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The place of a text."""
        if text not in self._places:
            self._places[text] = len(self.all)
            self.all.append(text)
        return self._places[text]


def drawing(history: History, report: Report, pool: str) -> dict[str, Any]:
    """Everything that a page draws: each slice's turns, switches and conditions, waits, marks, the report."""
    pen = _Pen(report.window)
    slices = [pen.slice(seen) for _, seen in sorted(history.slices.items())]
    return {
        "pool": pool,
        "begin_ms": report.window.begin_ms,
        "length_ms": report.window.length_ms,
        "slices": slices,
        "waits": pen.waits(history.waits),
        "marks": [
            [one.at_ms - report.window.begin_ms, one.type, one.text]
            for one in history.marks
            if report.window.touches(one.at_ms, one.at_ms)
        ],
        "names": pen.names.all,
        "report": report.as_json(),
    }


class _Pen:
    """Draws what is in a window."""

    def __init__(self, window: Window) -> None:
        self.names, self._window = Names(), window

    def slice(self, seen: SliceHistory) -> dict[str, Any]:
        turns = [self._turn(one) for one in self._seen(seen.turns)]
        switches = [self._switch(one) for one in self._seen(seen.switches)]
        conditions = [self._condition(one) for one in self._seen(seen.conditions)]
        return {
            "name": seen.name,
            "turns": _columns(turns, "from to job phase run lane request outcome"),
            "switches": _columns(switches, "from to job left request outcome bytes nodes"),
            "conditions": _columns(conditions, "from to what node reason"),
        }

    def waits(self, waits: Iterable[Wait]) -> dict[str, list[Any]]:
        """Those in the window, by slice and job on the page."""
        drawn = [self._wait(one) for one in waits if self._window.touches(one.asked_ms, one.ended_ms)]
        return _columns(drawn, "from complete granted to job request outcome slices requeued")

    def _seen(self, those: list[T]) -> list[T]:
        return [one for one in those if self._window.touches(one.began_ms, one.ended_ms)]

    def _at(self, ms: int | None) -> int:
        return NONE if ms is None else ms - self._window.begin_ms

    def _turn(self, one: Turn) -> tuple[Any, ...]:
        texts = map(self.names, (one.job, one.phase, one.run, one.lane, one.request, one.outcome))
        return (self._at(one.began_ms), self._at(one.ended_ms), *texts)

    def _switch(self, one: Switch) -> tuple[Any, ...]:
        texts = map(self.names, (one.job, one.left, one.request, one.outcome))
        nodes = [self._done(node, done) for node, done in one.nodes.items() if done.bytes or done.reason]
        return (self._at(one.began_ms), self._at(one.ended_ms), *texts, one.bytes, nodes)

    def _done(self, node: str, done: Done) -> list[Any]:
        steps = [
            [
                self.names(step.step),
                self.names(step.run),
                self.names(step.way),
                step.bytes,
                round(step.seconds, 4),
            ]
            for step in done.steps
        ]
        return [self.names(node), done.bytes, round(done.seconds, 4), self.names(done.reason), steps]

    def _condition(self, one: Condition) -> tuple[Any, ...]:
        texts = map(self.names, (one.what, one.node, one.reason))
        return (self._at(one.began_ms), self._at(one.ended_ms), *texts)

    def _wait(self, one: Wait) -> tuple[Any, ...]:
        times = map(self._at, (one.asked_ms, one.complete_ms, one.granted_ms, one.ended_ms))
        texts = map(self.names, (one.job, one.request, one.outcome))
        slices = self.names(" ".join(one.slices))
        return (*times, *texts, slices, [self.names(why) for why in one.requeued])


def _columns(rows: list[tuple[Any, ...]], names: str) -> dict[str, list[Any]]:
    """Rows as one list for each name."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names.split())
    return {name: list(column) for name, column in zip(names.split(), columns, strict=True)}
