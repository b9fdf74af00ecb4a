"""What a job got and what it paid: figures for the report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slicelock import estimate
from slicelock.events import EVICTING
from slicelock.history.episodes import Switch, Turn, Wait
from slicelock.history.fold import History
from slicelock.history.savings import Savings
from slicelock.history.sweep import Span, Window, sweep
from slicelock.percentile import percentile


@dataclass(frozen=True, slots=True)
class JobFigures(Savings):
    """One job, all its runs together. Seconds; shares from 0 to 1. docs/reference/report.md defines each."""

    job: str
    runs: int
    turns: int
    ended: dict[str, int]
    wait_p50_s: float
    wait_p95_s: float
    wait_max_s: float
    held_s: float
    phases: dict[str, float]
    switches: int
    switch_s: float
    bytes: int
    share: dict[str, float]
    now_s: float
    alone_s: float
    like_it_saved_share: float

    @property
    def slower(self) -> float:
        """How much longer it took than alone, as a share."""
        return self.now_s / self.alone_s - 1 if self.alone_s else 0.0


@dataclass(slots=True)
class _Run:
    """What is known of one run."""

    job: str
    turns: list[Turn] = field(default_factory=list[Turn])
    waits: list[Wait] = field(default_factory=list[Wait])
    switches: list[Switch] = field(default_factory=list[Switch])

    def bounds(self) -> tuple[int, int | None]:
        """From its first request to its last end; None: it goes on."""
        begins = [one.asked_ms for one in self.waits] + [one.began_ms for one in self.turns]
        ends = [one.ended_ms for one in (*self.waits, *self.turns)]
        return min(begins), None if None in ends else max(one for one in ends if one is not None)

    def stalled(self, window: Window) -> int:
        """How long it waited for others, in ms, while none of its lanes was in a turn."""
        spans = [(*window.clip(one.began_ms, one.ended_ms), "held") for one in self.turns]
        spans += [
            (*window.clip(one.complete_ms, one.ended_ms), "waits")
            for one in self.waits
            if one.complete_ms is not None
        ]
        return sum(length for length, present in sweep(spans) if "held" not in present and "waits" in present)

    def slices(self) -> set[str]:
        """Those that it asked for or had."""
        return {name for one in self.waits for name in one.slices} | {one.slice for one in self.turns}


def job_figures(history: History, window: Window, devices: Mapping[str, int]) -> list[JobFigures]:
    """The figures of every job that did something in the window, by name."""
    runs = _runs(history, window)
    by_job: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        by_job[run.job].append(run)
    costs = _costs(runs, window, devices)
    return [_job(job, by_job[job], window, devices, costs[job]) for job in sorted(by_job)]


def _runs(history: History, window: Window) -> list[_Run]:
    """All runs of which anything is in the window, with all that is known of them; not those that only evict,
    with which a job would seem to share."""
    runs: dict[str, _Run] = {}
    for wait in history.waits:
        if wait.phase != EVICTING:
            runs.setdefault(wait.run, _Run(wait.job)).waits.append(wait)
    for seen in history.slices.values():
        for turn in seen.turns:
            if turn.phase != EVICTING:
                runs.setdefault(turn.run, _Run(turn.job)).turns.append(turn)
        for switch in seen.switches:
            if switch.run in runs:
                runs[switch.run].switches.append(switch)
    return [run for run in runs.values() if window.touches(*run.bounds())]


def _costs(runs: Iterable[_Run], window: Window, devices: Mapping[str, int]) -> Counter[str]:
    """GPU-ms that each job occupied: a slice's time is shared by the jobs that are there."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for run in runs:
        for name in run.slices():
            spans[name].append((*window.clip(*run.bounds()), run.job))
    costs: Counter[str] = Counter()
    for name, those in spans.items():
        for length, present in sweep(those):
            for job in present:
                costs[job] += length * devices.get(name, 1) / len(present)  # type: ignore[assignment]
    return costs


def _job(
    job: str, runs: list[_Run], window: Window, devices: Mapping[str, int], cost_ms: float
) -> JobFigures:
    turns = [one for run in runs for one in run.turns if window.touches(one.began_ms, one.ended_ms)]
    waited = list(_waited(runs, window)) or [0]
    switches = [one for run in runs for one in run.switches if window.touches(one.began_ms, one.ended_ms)]
    now = sum(window.length(*run.bounds()) for run in runs)
    alone = now - sum(run.stalled(window) for run in runs)
    held = estimate.covered(window.clip(turn.began_ms, turn.ended_ms) for turn in turns)
    size = sum(devices.get(name, 1) for name in set[str]().union(*(run.slices() for run in runs)))
    ended, phases, share = _counted(turns, window)
    return JobFigures(
        job=job,
        runs=len(runs),
        turns=len({turn.request for turn in turns}),
        ended=ended,
        wait_p50_s=percentile(waited, 0.5) / 1000,
        wait_p95_s=percentile(waited, 0.95) / 1000,
        wait_max_s=max(waited) / 1000,
        held_s=held / 1000,
        phases=phases,
        switches=len(switches),
        switch_s=sum(window.length(one.began_ms, one.ended_ms) for one in switches) / 1000,
        bytes=sum(one.bytes for one in switches),
        share=share,
        now_s=now / 1000,
        alone_s=alone / 1000,
        gpu_hours_alone=alone * size / 3.6e6,
        gpu_hours_shared=cost_ms / 3.6e6,
        like_it_saved_share=estimate.saved(2 * alone, estimate.together(alone, held)),
    )


def _waited(runs: Iterable[_Run], window: Window) -> Iterator[int]:
    """The waits (ms) that ended with a turn in the window."""
    for run in runs:
        for one in run.waits:
            if one.outcome == "held" and one.ended_ms and window.touches(one.ended_ms, one.ended_ms):
                yield one.ended_ms - one.asked_ms


def _counted(
    turns: Iterable[Turn], window: Window
) -> tuple[dict[str, int], dict[str, float], dict[str, float]]:
    """How turns ended, seconds by phase, shares of slices."""
    ended = {turn.request: turn.outcome for turn in turns if turn.outcome}
    by_phase: dict[str, set[tuple[int, int]]] = defaultdict(set)
    by_slice: Counter[str] = Counter()
    for turn in turns:
        span = window.clip(turn.began_ms, turn.ended_ms)
        by_phase[turn.phase or "(no phase)"].add(span)
        by_slice[turn.slice] += span[1] - span[0]
    whole = max(window.length_ms, 1)
    return (
        dict(Counter(ended.values()).most_common()),
        {phase: estimate.covered(spans) / 1000 for phase, spans in sorted(by_phase.items())},
        {name: length / whole for name, length in sorted(by_slice.items())},
    )
