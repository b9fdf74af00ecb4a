"""Folds events into turns, waits, switches and conditions of slices.

The stream begins in the middle of things, and may have gaps. An end tells how long the thing was, so that it
is known although its beginning is not; and a slice that another request gets was left by the one before, even
if nobody said so.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from slicelock.events import GAP, KEPT, Event, clock_step
from slicelock.history.episodes import UNKNOWN, Condition, Done, Mark, Switch, Turn, Wait
from slicelock.history.sweep import Window

CONDITIONS = {"drain": "draining"}
"""Kinds of a block that have a name of their own."""


@dataclass(slots=True)
class SliceHistory:
    """What has happened to one slice, in order."""

    name: str
    turns: list[Turn] = field(default_factory=list[Turn])
    switches: list[Switch] = field(default_factory=list[Switch])
    conditions: list[Condition] = field(default_factory=list[Condition])
    present: list[Condition] = field(default_factory=list[Condition])
    """The conditions that go on."""

    @property
    def turn(self) -> Turn | None:
        """The turn that goes on."""
        return self.turns[-1] if self.turns and self.turns[-1].ended_ms is None else None

    @property
    def switch(self) -> Switch | None:
        """The switch that goes on."""
        return self.switches[-1] if self.switches and self.switches[-1].ended_ms is None else None

    @property
    def known(self) -> bool:
        """Whether there is anything to tell of it."""
        return bool(self.turns or self.switches or self.conditions)

    def has(self, what: str) -> bool:
        """Whether a condition of this kind goes on."""
        return any(one.what == what for one in self.present)

    def begin(self, what: str, at_ms: int, node: str = "", reason: str = "") -> None:
        """A condition begins."""
        self.present.append(Condition(self.name, what, at_ms, node, reason))
        self.conditions.append(self.present[-1])

    def end(self, at_ms: int, what: str = "", node: str | None = None) -> None:
        """The conditions of this kind and node, or all of them, are over."""
        over = [one for one in self.present if what in ("", one.what) and node in (None, one.node)]
        for one in over:
            one.ended_ms = at_ms
        self.present = [one for one in self.present if one.ended_ms is None]


class History:
    """What has happened in a pool. Feed it events in order; `now_ms` is the time of the last."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.slices: dict[str, SliceHistory] = {}
        self.waits: list[Wait] = []
        self.marks: list[Mark] = []
        self.begin_ms, self.now_ms = 0, 0
        self._forgot = False
        self._times = array("q")
        """When each event was."""
        self._waiting: dict[str, Wait] = {}
        self._last: dict[tuple[str, str], str] = {}
        """The newest request of each run and lane: it has only one at a time."""
        self._gave: set[tuple[str, str]] = set()
        """Requests in their turn, and the slices that they have given back."""
        self._takers = self._by_type()
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Take one event; types that are not known only move the clock."""
        self.begin_ms = self.begin_ms or event.t_ms
        self.now_ms = max(self.now_ms, event.t_ms)
        self._times.append(event.t_ms)
        if take := self._takers.get(event.type):
            take(event)

    @property
    def whole(self) -> bool:
        """Whether it reaches back to the pool's first event: a stream that is not full has lost none."""
        return not self._forgot and len(self._times) < KEPT

    def count(self, window: Window) -> int:
        """How many events there are in a window."""
        return sum(1 for at_ms in self._times if window.begin_ms <= at_ms <= window.end_ms)

    def _by_type(self) -> dict[str, Callable[[Event], None]]:
        return {
            "queued": self._queued,
            "switching": self._switching,
            "ready": self._result,
            "failed": self._result,
            "held": self._held,
            "reasserted": self._reasserted,
            "given_back": self._given_back,
            "ended": self._ended,
            "requeued": self._requeued,
            "blocked": self._blocked,
            "healed": self._healed,
            "epoch": self._epoch,
            "declared": self._declared,
            "settled": self._settled,
            "kept": self._kept,
            "forgotten": self._forgotten,
            "silent": self._mark,
            "heard": self._mark,
            "clock": self._mark,
            GAP: self._mark,
        }

    def forget(self, before_ms: int) -> None:
        """Drop what had ended before a time: a history that is fed for ever stays small."""

        def stays(one: Turn | Switch | Condition | Wait) -> bool:
            return one.ended_ms is None or one.ended_ms >= before_ms

        self.waits = [one for one in self.waits if stays(one)]
        self.marks = [one for one in self.marks if one.at_ms >= before_ms]
        for seen in self.slices.values():
            seen.turns = [one for one in seen.turns if stays(one)]
            seen.switches = [one for one in seen.switches if stays(one)]
            seen.conditions = [one for one in seen.conditions if stays(one)]
        self.slices = {name: seen for name, seen in self.slices.items() if seen.known}
        self._forgot = True
        self.begin_ms = max(self.begin_ms, before_ms)
        self._times = array("q", (at_ms for at_ms in self._times if at_ms >= before_ms))
        waiting = self._waiting.keys()
        self._last = {lane: one for lane, one in self._last.items() if one in waiting}

    # ------------------------------------------------------------ requests

    def _queued(self, event: Event) -> None:
        self._wait_of(event).queued_ms = event.t_ms

    def _switching(self, event: Event) -> None:
        wait = self._wait_of(event)
        wait.granted_ms = wait.granted_ms or event.t_ms
        # All are granted at once, and those without agents have no event of their own.
        for name in wait.slices:
            self._begin_switch(self._slice(name), event, event.t_ms)
        if switch := self._slice(event.text("slice")).switch:
            switch.fence = event.text("fence")

    def _begin_switch(self, seen: SliceHistory, event: Event, began_ms: int) -> Switch:
        switch = seen.switch
        if switch is None or switch.request != event.request:
            left = seen.turns[-1].job if seen.turns else ""
            self._vacate(seen, event)
            facts = (event.request, event.text("run"), event.text("job"), event.text("fence"), began_ms, left)
            switch = Switch(seen.name, *facts)
            seen.switches.append(switch)
        return switch

    def _result(self, event: Event) -> None:
        began_ms = event.t_ms - int(event.number("seconds") * 1000)
        switch = self._begin_switch(self._slice(event.text("slice")), event, began_ms)
        busy = event.number("busy") if event.text("busy") else None
        moved, seconds = int(event.number("bytes")), event.number("seconds")
        done = Done(event.t_ms, moved, seconds, busy, event.text("reason"), event.text("steps"))
        switch.nodes[event.text("node")] = done

    def _held(self, event: Event) -> None:
        wait = self._wait_of(event)
        self._end_wait(wait, event, "held")
        for name in event.slices:
            self._begin_turn(self._slice(name), event, event.t_ms)

    def _reasserted(self, event: Event) -> None:
        if wait := self._waiting.get(event.request):
            self._end_wait(wait, event, "held")
        for name in event.slices:
            seen = self._slice(name)
            if seen.turn is None or seen.turn.request != event.request:
                self._begin_turn(seen, event, event.t_ms)

    def _given_back(self, event: Event) -> None:
        self._end_turn(self._slice(event.text("slice")), event, "yielded", self.begin_ms)
        self._gave.add((event.request, event.text("slice")))

    def _ended(self, event: Event) -> None:
        outcome = event.text("outcome") or UNKNOWN
        if wait := self._waiting.get(event.request):
            self._end_wait(wait, event, outcome)
        elif event.text("waited_ms"):
            self._end_wait(self._wait_of(event), event, outcome)
        began = event.t_ms - int(event.number("held_ms"))
        for name in event.slices:
            seen = self._slice(name)
            self._end_switch(seen, event, outcome)
            if event.text("held_ms") and (event.request, name) not in self._gave:
                self._end_turn(seen, event, outcome, began)
            self._gave.discard((event.request, name))

    def _requeued(self, event: Event) -> None:
        wait = self._wait_of(event)
        wait.requeued.append(event.text("reason"))
        wait.queued_ms = wait.complete_ms or event.t_ms
        wait.granted_ms = None
        for name in event.slices:
            seen = self._slice(name)
            self._end_switch(seen, event, "requeued")
            if seen.turn and seen.turn.request == event.request:
                self._end_turn(seen, event, "requeued", event.t_ms)

    # ------------------------------------------------------------ slices, nodes and the pool

    def _blocked(self, event: Event) -> None:
        what = CONDITIONS.get(event.text("kind"), "blocked")
        seen, node = self._slice(event.text("slice")), event.text("node")
        seen.end(event.t_ms, node=node)
        seen.begin(what, event.t_ms, node, event.text("reason"))

    def _healed(self, event: Event) -> None:
        self._slice(event.text("slice")).end(event.t_ms, node=event.text("node"))

    def _epoch(self, event: Event) -> None:
        self.marks.append(Mark("epoch", event.t_ms, "Redis began anew, or another server took over"))
        for seen in self.slices.values():
            self._unsettle(seen, event.t_ms)

    def _declared(self, event: Event) -> None:
        seen = self._slice(event.text("slice"))
        if event.text("nodes"):
            self._unsettle(seen, event.t_ms)

    def _settled(self, event: Event) -> None:
        seen = self._slice(event.text("slice"))
        if not seen.has("settling"):  # since before the stream begins
            seen.begin("settling", self.begin_ms if not seen.conditions else event.t_ms)
        seen.end(event.t_ms, "settling")

    def _kept(self, event: Event) -> None:
        seen = self._slice(event.text("slice"))
        seen.begin("kept", event.t_ms, reason=f"for {event.text('request')}")

    def _forgotten(self, event: Event) -> None:
        if seen := self.slices.get(event.text("slice")):
            seen.end(event.t_ms)

    def _mark(self, event: Event) -> None:
        text = event.text("node") or event.text("reason") or clock_step(event.number("step_ms"))
        self.marks.append(Mark(event.type, event.t_ms, text))

    # ------------------------------------------------------------ beginnings and ends

    def _slice(self, name: str) -> SliceHistory:
        if name not in self.slices:
            self.slices[name] = SliceHistory(name)
        return self.slices[name]

    def _unsettle(self, seen: SliceHistory, at_ms: int) -> None:
        seen.end(at_ms, "kept")
        if not seen.has("settling"):
            seen.begin("settling", at_ms)

    def _wait_of(self, event: Event) -> Wait:
        """The wait of the event's request; a new one begins as long before as the event says."""
        request, asked = event.request, event.t_ms - int(event.number("waited_ms"))
        wait = self._waiting.get(request)
        if wait is None:
            wait = Wait(request, *_whose(event), tuple(event.text("slices").split()), asked)
            self.waits.append(wait)
            self._waiting[request] = wait
            self._forget_wait(self._last.get((wait.run, wait.lane), ""), event)
            self._last[wait.run, wait.lane] = request
        elif event.text("waited_ms"):
            wait.asked_ms = min(wait.asked_ms, asked)
        return wait

    def _end_wait(self, wait: Wait, event: Event, outcome: str) -> None:
        wait.ended_ms, wait.outcome = event.t_ms, outcome
        self._waiting.pop(wait.request, None)

    def _begin_turn(self, seen: SliceHistory, event: Event, began_ms: int) -> None:
        self._end_switch(seen, event, "held")
        self._vacate(seen, event)
        seen.end(event.t_ms, "kept")
        seen.turns.append(Turn(seen.name, event.request, *_whose(event), began_ms))

    def _end_turn(self, seen: SliceHistory, event: Event, outcome: str, began_ms: int) -> None:
        if seen.turn and seen.turn.request != event.request:
            return  # it has given the slice back, before the stream begins
        if seen.turn is None:
            free_since = seen.turns[-1].ended_ms if seen.turns else None
            self._begin_turn(seen, event, max(began_ms, free_since or 0))
        turn = seen.turns[-1]
        turn.ended_ms, turn.outcome = event.t_ms, outcome

    def _end_switch(self, seen: SliceHistory, event: Event, outcome: str) -> None:
        if seen.switch and seen.switch.request == event.request:
            seen.switch.outcome, seen.switch.ended_ms = outcome, event.t_ms

    def _vacate(self, seen: SliceHistory, event: Event) -> None:
        """The slice is another's now, so whoever had it has left, also when no event says so."""
        for one in (seen.turn, seen.switch):
            if one is not None:
                one.ended_ms, one.outcome = event.t_ms, UNKNOWN
                self._forget_wait(one.request, event)

    def _forget_wait(self, request: str, event: Event) -> None:
        if request != event.request and (wait := self._waiting.get(request)):
            self._end_wait(wait, event, UNKNOWN)


def _whose(event: Event) -> tuple[str, str, str, str]:
    return event.text("run"), event.text("job"), event.text("lane"), event.text("phase")
