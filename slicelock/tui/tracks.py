"""What has happened to each slice: the history of its events, put right by each picture of the pool."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median

from slicelock.events import Event
from slicelock.history import Block, History, SliceHistory, Switch, Turn, strip
from slicelock.history.sweep import Window
from slicelock.picture import Picture, RequestView, SliceView

KEPT_MS = 15 * 60_000
FORGET_MS = 30_000  # between two times that what is past is dropped
TURNS_FOR_USUAL = 15  # whose median is a turn's usual length
FEWEST_TURNS = 3
TURNS_LOOKED_AT = 300
EVENTS_KEPT = 4_000


@dataclass(frozen=True, slots=True)
class Totals:
    """What the window says of all slices. `duty` and `lost` are shares of the slices' time."""

    duty: float = 0.0
    lost: float = 0.0
    lost_ms: int = 0
    switches: int = 0


@dataclass(frozen=True, slots=True)
class JobTotals:
    """What a job has had in the window: its share of all time held, its turns, and their length together."""

    share: float
    turns: int
    held_ms: int


class Tracks:
    """Everything that strips, totals and usual lengths are made of."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._history = History()
        self._jobs: dict[str, str] = {}
        self._names: tuple[str, ...] = ()
        self._forgot = self._first_seen = 0
        self._changes: Counter[str] = Counter()
        self._strips: dict[str, tuple[object, list[Block]]] = {}

    # ------------------------------------------------------------ what happens, and what is

    def take(self, events: Iterable[Event]) -> None:
        """Events in their order."""
        for event in events:
            self.events.append(event)
            self._feed(event)

    def _feed(self, event: Event) -> None:
        self._history.feed(event)
        self._changes.update(event.slices or self._names)
        if run := event.text("run"):
            self._jobs[run] = event.text("job")

    def see(self, picture: Picture) -> None:
        """Put right what events have not told, and forget what is past."""
        self._names = tuple(one.name for one in picture.slices)
        self._first_seen = self._first_seen or picture.now_ms
        for one in picture.slices:
            for event in _missing(one, self.of(one.name), picture.now_ms):
                self._feed(event)
        if picture.now_ms - self._forgot > FORGET_MS:
            self._forgot = picture.now_ms
            self._forget(picture)

    def _forget(self, picture: Picture) -> None:
        self._history.forget(picture.now_ms - KEPT_MS)
        runs = _runs(picture) | {event.text("run") for event in self.events}
        self._jobs = {run: job for run, job in self._jobs.items() if run in runs}
        self._strips = {name: kept for name, kept in self._strips.items() if name in self._names}
        self._changes = Counter(
            {name: number for name, number in self._changes.items() if name in self._names}
        )

    # ------------------------------------------------------------ what it says

    @property
    def remembered(self) -> set[str]:
        """The slices of which anything is kept."""
        return {*self._history.slices, *self._strips, *self._changes}

    def of(self, name: str) -> SliceHistory:
        """A slice's history, which may be empty."""
        return self._history.slices.get(name) or SliceHistory(name)

    def jobs(self) -> set[str]:
        """All jobs that have had a slice, or have asked for one."""
        return set(self._jobs.values())

    def job_of(self, run: str) -> str:
        """The job of a run; empty when it is not known."""
        return self._jobs.get(run, "")

    def usual_ms(self, name: str, job: str, phase: str) -> float | None:
        """The median length of a job's last turns of a phase on a slice; None while there are too few."""
        turns = islice(reversed(self.of(name).turns), TURNS_LOOKED_AT)
        same = (
            one.ended_ms - one.began_ms
            for one in turns
            if one.ended_ms is not None and (one.job, one.phase) == (job, phase)
        )
        lengths = list(islice(same, TURNS_FOR_USUAL))
        return median(lengths) if len(lengths) >= FEWEST_TURNS else None

    def totals(self, now: int, window_ms: int) -> Totals:
        """What the window says of all slices together."""
        first, held, lost, switches = now - window_ms, 0, 0, 0
        window = Window(first, now)
        for name in self._names:
            seen = self.of(name)
            held += sum(window.length(one.began_ms, one.ended_ms) for one in recent(seen.turns, first))
            for switch in recent(seen.switches, first):
                lost += window.length(switch.began_ms, switch.ended_ms)
                switches += switch.began_ms >= first
        since = min(self._history.begin_ms or now, self._first_seen or now)
        known = len(self._names) * (now - max(first, since)) or 1
        return Totals(min(held / known, 1.0), min(lost / known, 1.0), lost, switches)

    def by_job(self, now: int, window_ms: int) -> dict[str, JobTotals]:
        """What each job has had in the window, the largest share first."""
        first = now - window_ms
        window = Window(first, now)
        held, turns = Counter[str](), defaultdict[str, int](int)
        for name in self._names:
            for turn in recent(self.of(name).turns, first):
                held[turn.job] += window.length(turn.began_ms, turn.ended_ms)
                turns[turn.job] += 1
        whole = held.total() or 1
        return {job: JobTotals(ms / whole, turns[job], ms) for job, ms in held.most_common()}

    def strip(self, name: str, now: int, window_ms: int, cells: int) -> list[Block]:
        """The window in cells, oldest first. They lie at fixed times, so they move on without flicker."""
        size = max(1, window_ms // max(cells, 1))
        end = (now // size + 1) * size
        key = (end, size, cells, self._changes[name])
        kept = self._strips.get(name)
        if kept is None or kept[0] != key:
            kept = self._strips[name] = (key, strip(self.of(name), end - cells * size, end, cells))
        return kept[1]

    def events_of(self, name: str, nodes: frozenset[str], most: int) -> list[Event]:
        """The last events of a slice, of its nodes and of the whole pool, newest first."""
        here = (event for event in reversed(self.events) if event.concerns(name))
        about = (event for event in here if event.slices or event.text("node") in ("", *nodes))
        return list(islice(about, max(most, 0)))


def _runs(picture: Picture) -> set[str]:
    """The runs that a picture names: in turns and queues, and on devices."""
    requests = [one for each in picture.slices for one in (each.holder, *each.queue) if one]
    reports = [report for node in picture.nodes for report in node.reports.values()]
    there = {str(run) for report in reports for what in ("loaded", "saved") for run in report.get(what) or ()}
    return there | {one.run for one in (*requests, *picture.gathering)}


def recent(parts: list[Turn] | list[Switch], first: int) -> Iterator[Turn | Switch]:
    """Those that reach beyond a time, newest first."""
    for part in reversed(parts):
        if part.ended_ms is not None and part.ended_ms <= first:
            return
        yield part


def _missing(one: SliceView, seen: SliceHistory, now: int) -> Iterator[Event]:
    """The events that would make a history say what the picture says; none if it is newer than that."""
    present = {"switching": seen.switch, "held": seen.turn}
    if any(part and part.began_ms > now for part in present.values()):
        return
    if any((part.ended_ms or 0) > now for part in (*seen.turns[-1:], *seen.switches[-1:])):
        return
    holder = one.holder
    for state, part in present.items():
        if part and (holder is None or (holder.id, one.state) != (part.request, state)):
            held = {"held_ms": str(now - part.began_ms)} if state == "held" else {}
            yield _event("ended", one.name, part.request, part.job, now, **held)
    shown = present.get(one.state)
    if holder and not (shown and shown.request == holder.id):
        at = _since(one, holder, seen, now)
        yield _event(one.state, one.name, holder.id, holder.job, at, phase=holder.phase)


def _since(one: SliceView, holder: RequestView, seen: SliceHistory, now: int) -> int:
    """When what the picture shows began; not before the end of what was there."""
    ends = (part.ended_ms or 0 for part in (*seen.turns[-1:], *seen.switches[-1:]))
    return max([now - (holder.held_ms if one.state == "held" else one.since_ms), *ends])


def _event(kind: str, name: str, request: str, job: str, at: int, **facts: str) -> Event:
    run, lane, k = request.split("/")
    return Event("", kind, at, {"slice": name, "run": run, "lane": lane, "k": k, "job": job, **facts})
