"""Was sharing worth it: the figures of a pool's history in a window of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slicelock.events import GAP
from slicelock.history.fold import History
from slicelock.history.jobs import JobFigures, job_figures
from slicelock.history.savings import Savings
from slicelock.history.slices import SliceFigures, slice_figures
from slicelock.history.sweep import Window


@dataclass(frozen=True, slots=True)
class Report(Savings):
    """Figures by job and by slice, and of all jobs together. docs/reference/report.md defines each of them.

    `events`: how many there are in the window. `complete`: none of it was lost or trimmed, and they reach
    back to its beginning, or to that of the pool.
    """

    window: Window
    events: int
    complete: bool
    jobs: tuple[JobFigures, ...]
    slices: tuple[SliceFigures, ...]

    def as_json(self) -> dict[str, Any]:
        """Seconds, bytes, percent and shares from 0 to 1; times in ms of Redis' clock."""
        return {
            "begin_ms": self.window.begin_ms,
            "end_ms": self.window.end_ms,
            "events": self.events,
            "complete": self.complete,
            "total": {name: round(getattr(self, name), 6) for name in TOTALS},
            "jobs": [
                _rounded(asdict(one) | {name: getattr(one, name) for name in DERIVED}) for one in self.jobs
            ],
            "slices": [_rounded(asdict(one)) for one in self.slices],
        }


TOTALS = ("gpu_hours_alone", "gpu_hours_shared", "saved_gpu_hours", "saved_share")
DERIVED = ("saved_gpu_hours", "saved_share", "slower")


def report(
    history: History, *, since_ms: int = 0, until_ms: int = 0, devices: Mapping[str, int] | None = None
) -> Report:
    """The figures from `since_ms` (else the first event) to `until_ms` (else the last). `devices`: how many
    each slice has; 1 for one that is not named."""
    begin = max(since_ms, history.begin_ms)
    window = Window(begin, max(until_ms or history.now_ms, begin))
    sizes = devices or {}
    lost = any(one.type == GAP and one.at_ms >= begin for one in history.marks)
    jobs = tuple(job_figures(history, window, sizes))
    return Report(
        gpu_hours_alone=sum(one.gpu_hours_alone for one in jobs),
        gpu_hours_shared=sum(one.gpu_hours_shared for one in jobs),
        window=window,
        events=history.count(window),
        complete=not lost and (not since_ms or history.begin_ms <= since_ms or history.whole),
        jobs=jobs,
        slices=tuple(
            slice_figures(history, seen, window, sizes.get(name, 1))
            for name, seen in sorted(history.slices.items())
        ),
    )


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {name: _rounded(one) for name, one in value.items()}  # pyright: ignore
        case list() | tuple():
            return [_rounded(one) for one in value]  # pyright: ignore
        case _:
            return value
