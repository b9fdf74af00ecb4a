"""What the view shows and what keys do: a state machine without I/O and without a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from slicelock.events import Event
from slicelock.picture import Picture, RequestView, SliceView
from slicelock.tui.intents import (
    Intent,
    Question,
    drain_node_question,
    drain_question,
    revoke_question,
)
from slicelock.tui.palette import Palette
from slicelock.tui.tracks import KEPT_MS, Totals, Tracks
from slicelock.words import clean

WINDOWS_MS = (60_000, 300_000, KEPT_MS)
LATE_S = 3.0  # without an answer, that is told
NEWS_S = 20.0  # how long a piece of news stays
PAGE = 10
BACKLOG = 100_000  # events that a paused view keeps for later


class Mode(StrEnum):
    """What keys are for."""

    LIST = "list"
    DETAILS = "details"
    FILTER = "filter"
    HELP = "help"
    CONFIRM = "confirm"


class Sort(StrEnum):
    """How slices are ordered."""

    NAME = "name"
    STATE = "state"
    QUEUE = "queue"
    WAIT = "longest wait"
    HELD = "time held"


STATES = ("blocked", "switching", "settling", "held", "draining", "free")


def state_of(one: SliceView) -> str:
    """A slice's state in one word: what keeps it from its work comes first."""
    conditions = {"blocked": one.troubles, "settling": one.settling, "draining": one.draining}
    named = next((name for name, there in conditions.items() if there), "")
    if named == "draining" and one.state != "free":
        return one.state
    return named or one.state


ORDERS: dict[Sort, Callable[[SliceView], tuple[object, ...]]] = {
    Sort.NAME: lambda one: (one.name,),
    Sort.STATE: lambda one: (STATES.index(state_of(one)), one.name),
    Sort.QUEUE: lambda one: (-one.queued, one.name),
    Sort.WAIT: lambda one: (-max((r.waited_ms for r in one.queue), default=-1), one.name),
    Sort.HELD: lambda one: (-(one.holder.held_ms if one.holder else -1), one.name),
}


@dataclass(frozen=True, slots=True)
class News:
    """Something that is told for a while. `at`: seconds on the app's clock."""

    text: str
    at: float
    bad: bool = False


@dataclass
class View:
    """The whole state. Times named `_s` are on the app's monotonic clock."""

    place: str
    pool: str
    readonly: bool = False
    may_act: bool = False
    """Whether Redis lets this user write; until that is known it counts as no."""
    picture: Picture | None = None
    seen_s: float = 0.0
    """When the last picture came."""
    failing: str = ""
    """Why Redis does not answer; empty: it does."""
    tracks: Tracks = field(default_factory=Tracks)
    palette: Palette = field(default_factory=Palette)
    mode: Mode = Mode.LIST
    sort: Sort = Sort.NAME
    filter: str = ""
    selected: str = ""
    window: int = 1
    paused: bool = False
    question: Question | None = None
    news: News | None = None
    quit: bool = False
    redraw: bool = False
    _nodes: tuple[str, ...] = ()
    _before: Mode = Mode.LIST
    _place_seen: str = ""
    """Where the last picture came from."""
    _pending: list[Event] = field(default_factory=list[Event])
    _latest: tuple[Picture, float] | None = None

    # ------------------------------------------------------------ what comes in

    def take_picture(self, picture: Picture, now_s: float) -> None:
        """A new picture; while paused it is kept for later."""
        self._tell_what_happened(picture, now_s)
        self.failing, self._place_seen = "", self.place
        self._latest = picture, now_s
        if not self.paused or self.picture is None:
            self._show_latest()

    def _tell_what_happened(self, picture: Picture, now_s: float) -> None:
        """Of Redis itself, since the last picture: the epoch changes only when somebody writes."""
        before = self._latest[0] if self._latest else None
        if before is None:
            return
        emptied = bool(before.slices and not picture.slices)
        if self.place != self._place_seen:
            self.news = News(f"{self.place} has taken over; the view goes on", now_s)
        elif before.epoch != picture.epoch or (
            emptied and self.failing
        ):  # an empty server has the first epoch
            text = f"{self.place} began anew or took over (epoch {picture.epoch}); the view goes on"
            self.news = News(text, now_s)
        elif emptied:
            self.news = News("the pool has no slices any more", now_s)
        elif self.failing:
            self.news = News(f"{self.place} answers again", now_s)

    def _show_latest(self) -> None:
        if self._latest is None:
            return
        self.picture, self.seen_s = self._latest
        self.tracks.take(self._pending)
        self._pending.clear()
        self.tracks.see(self.picture)
        self.palette.meet(self.tracks.jobs() | _jobs(self.picture))
        self._keep_selection()

    def take_events(self, events: Iterable[Event]) -> None:
        """What has happened; it shows with the next picture, which it belongs to."""
        self._pending.extend(events)
        del self._pending[:-BACKLOG]

    def take_failure(self, why: str) -> None:
        """Redis has not answered."""
        self.failing = clean(why)

    def tell(self, text: str, now_s: float, *, bad: bool = False) -> None:
        """Something that the user should know."""
        self.news = News(clean(text), now_s, bad)

    # ------------------------------------------------------------ what is shown

    @property
    def window_ms(self) -> int:
        """The length of the strips and of what the totals are about."""
        return WINDOWS_MS[self.window]

    @property
    def acts(self) -> bool:
        """Whether operator actions are offered."""
        return self.may_act and not self.readonly

    @property
    def opened(self) -> bool:
        """Whether the details have the screen, be it below a question."""
        return Mode.DETAILS in (self.mode, self._before if self.mode is not Mode.LIST else self.mode)

    def now_ms(self, now_s: float) -> int:
        """Redis' clock; it stands still with a paused view, and while Redis does not answer."""
        if self.picture is None:
            return 0
        return self.picture.now_ms + (0 if self.paused or self.is_stale(now_s) else self._since(now_s))

    def age_ms(self, now_s: float) -> int:
        """What has passed since the picture, for times that go on."""
        return 0 if self.picture is None else self.now_ms(now_s) - self.picture.now_ms

    def _since(self, now_s: float) -> int:
        return round((now_s - self.seen_s) * 1000)

    def is_stale(self, now_s: float) -> bool:
        """Whether the picture is old, since Redis does not answer."""
        return not self.paused and self.silence_s(now_s) >= LATE_S

    def silence_s(self, now_s: float) -> float:
        """Seconds since Redis has last answered."""
        return now_s - self._latest[1] if self._latest else 0.0

    def notice(self, now_s: float) -> News | None:
        """The one line that matters most now."""
        if self._latest and self.silence_s(now_s) >= LATE_S:
            seconds = int(self.silence_s(now_s))
            told = (
                f"for {seconds} s: {self.failing}" if self.failing else f"from {self.place} for {seconds} s"
            )
            return News(f"no answer {told}", now_s, bad=True)
        if self.news and now_s - self.news.at < NEWS_S:
            return self.news
        if self.picture and self.picture.senseless:
            name, why = next(iter(self.picture.senseless.items()))
            others = len(self.picture.senseless) - 1
            more = f" ({others} more: slicelock status)" if others else ""
            return News(f"the record {name} makes no sense{more}: {why}", now_s, bad=True)
        return None

    def totals(self, now_s: float) -> Totals:
        """What the window says of all slices together."""
        return self.tracks.totals(self.now_ms(now_s), self.window_ms)

    def slices(self) -> list[SliceView]:
        """The slices that are shown, in their order."""
        if self.picture is None:
            return []
        words = self.filter.lower().split()
        fit = (one for one in self.picture.slices if all(word in _text(one) for word in words))
        return sorted(fit, key=ORDERS[self.sort])

    def chosen(self) -> SliceView | None:
        """The selected slice."""
        shown = self.slices()
        return next((one for one in shown if one.name == self.selected), shown[0] if shown else None)

    def job_of(self, run: str) -> str:
        """The job of a run, as far as it is known; else the run."""
        seen = self.slices_seen()
        requests = (r for one in seen for r in (*([one.holder] if one.holder else []), *one.queue))
        known = next((request.job for request in requests if request.run == run), "")
        return known or self.tracks.job_of(run) or run

    def slices_seen(self) -> tuple[SliceView, ...]:
        """All slices, filtered or not."""
        return self.picture.slices if self.picture else ()

    def waiters(self, one: SliceView) -> list[RequestView]:
        """Who waits for a slice: those in its queue, then those whose members have not all asked."""
        gathering = self.picture.gathering if self.picture else ()
        return [*one.queue, *(request for request in gathering if one.name in request.slices)]

    # ------------------------------------------------------------ what keys do

    def press(self, key: str, now_s: float) -> Intent | None:
        """One key; what is to be done for an operator who has said yes."""
        if key in ("redraw", "quit"):
            self.redraw, self.quit = self.redraw or key == "redraw", self.quit or key == "quit"
            return None
        intent: Intent | None = None
        match self.mode:
            case Mode.FILTER:
                self._type(key)
            case Mode.CONFIRM:
                intent = self._answer(key)
            case Mode.HELP:
                self.mode = self._before
            case _:
                self._command(key, now_s)
        return intent

    def _command(self, key: str, now_s: float) -> None:
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -PAGE, "page down": PAGE}
        moves |= {"home": -(10**6), "g": -(10**6), "end": 10**6, "G": 10**6}
        if key in moves:
            self._move(moves[key])
        elif key in self._verbs:
            self._verbs[key](self)
        elif key in ("r", "d", "D") and self.acts:
            self._ask(key, now_s)

    def _move(self, by: int) -> None:
        names = [one.name for one in self.slices()]
        if names:
            at = names.index(self.selected) if self.selected in names else 0
            self.selected = names[max(0, min(len(names) - 1, at + by))]

    def _keep_selection(self) -> None:
        names = [one.name for one in self.slices()]
        if names and self.selected not in names:
            self.selected = names[0]

    def _toggle_details(self) -> None:
        self.mode = Mode.LIST if self.mode is Mode.DETAILS else Mode.DETAILS

    def _back(self) -> None:
        if self.mode is Mode.DETAILS:
            self.mode = Mode.LIST
        else:
            self.filter = ""

    def _next_sort(self) -> None:
        orders = list(Sort)
        self.sort = orders[(orders.index(self.sort) + 1) % len(orders)]

    def _next_window(self) -> None:
        self.window = (self.window + 1) % len(WINDOWS_MS)

    def _pause(self) -> None:
        self.paused = not self.paused
        if not self.paused:
            self._show_latest()

    def _quit(self) -> None:
        self.quit = True

    def _help(self) -> None:
        self._before, self.mode = self.mode, Mode.HELP

    def _begin_filter(self) -> None:
        self._before, self.mode = self.mode, Mode.FILTER

    _verbs: dict[str, Callable[[View], None]] = field(
        init=False,
        repr=False,
        default_factory=lambda: {
            **dict.fromkeys(("enter", "right"), View._toggle_details),
            **dict.fromkeys(("escape", "left"), View._back),
            **dict.fromkeys(("p", " "), View._pause),
            **dict.fromkeys(("?", "h"), View._help),
            **{"s": View._next_sort, "w": View._next_window, "/": View._begin_filter, "q": View._quit},
        },
    )

    # ------------------------------------------------------------ the filter, and questions

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.mode = self._before
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif key == "clear":
            self.filter = ""
        elif len(key) == 1 and key.isprintable():
            self.filter += key
        self._keep_selection()

    def _ask(self, key: str, now_s: float) -> None:
        one = self.chosen()
        if one is None:
            return
        self._nodes = tuple(sorted(one.nodes)) if key == "D" else ()
        match key:
            case "r":
                self.question = revoke_question(one)
            case "d":
                self.question = drain_question(one)
            case _:
                self.question = self._about_node()
        if self.question is None:
            why = f"{one.name} has no node" if key == "D" else f"nobody has {one.name}"
            self.tell(f"Nothing to do: {why}.", now_s)
        else:
            self._before, self.mode = self.mode, Mode.CONFIRM

    def _about_node(self) -> Question | None:
        if not self._nodes or self.picture is None:
            return None
        node = self._nodes[0]
        question = drain_node_question(node, tuple(one for one in self.picture.slices if node in one.nodes))
        if len(self._nodes) == 1:
            return question
        more = f"Tab: node {self._nodes[1]} instead."
        return Question(question.ask, (*question.lines, more), question.intent)

    def _answer(self, key: str) -> Intent | None:
        """Only y says yes; only Tab, where there are several nodes, says anything but no."""
        if key == "tab" and len(self._nodes) > 1:
            self._nodes = (*self._nodes[1:], self._nodes[0])
            self.question = self._about_node()
            return None
        question, self.question, self.mode = self.question, None, self._before
        return question.intent if question and key in ("y", "Y") else None


def _jobs(picture: Picture) -> set[str]:
    waiting = {request.job for one in picture.slices for request in one.queue}
    holding = {one.holder.job for one in picture.slices if one.holder}
    return waiting | holding | {request.job for request in picture.gathering}


def _text(one: SliceView) -> str:
    """What a filter looks at: names, state, jobs, nodes."""
    requests = (*([one.holder] if one.holder else []), *one.queue)
    jobs = (f"{request.job} {request.phase}" for request in requests)
    return " ".join((one.name, state_of(one), *one.nodes, *jobs)).lower()
