"""The agent's beats: every `SLICELOCK_BEAT` seconds, at each hint, and at once with everything new."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from slicelock.errors import SlicelockError
from slicelock.store import Outage
from slicelock.wire import AskWanted, Beat, BeatReply, Results
from slicelock_agent.introducing import other_agent_error
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.reconcile import Wanted
from slicelock_agent.registry import Registry
from slicelock_agent.result import Result
from slicelock_agent.store import Caller
from slicelock_agent.switcher import Switcher
from slicelock_agent.tally import UNCOUNTED, Tally

log = logging.getLogger("slicelock_agent")

RETRY_S = 0.5
"""Between two tries while Redis does not answer."""
BEATS_MISSED = 5
"""So many beats without an answer are an outage of Redis."""
REST_S = 0.01
"""Before a beat that only has more to reap, so that a large backlog does not keep Redis busy alone; and
before the rest of what a beat would say, when a result that somebody waits for has gone out by itself."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What every beat says of the agent. `agent`: which one of the node it is. `beat_s`: seconds between
    two."""

    node: str
    agent: str
    version: str
    silent_ms: int
    beat_s: float

    def beat(self, report: dict[str, Any]) -> Beat:
        """A beat with what there is to report."""
        return Beat(self.node, self.agent, self.version, self.silent_ms, report)

    def question(self) -> Beat:
        """A beat that leaves no trace: is another agent of this node heard of?"""
        return Beat(self.node, self.agent, self.version, 0, {})

    def results(self, results: list[Result]) -> Results:
        """Results by themselves, in haste."""
        return Results(self.node, self.agent, [result.told() for result in results])


class Pulse:
    """Sends beats, one at a time, and passes on what they bring; what comes up meanwhile goes with the next.

    All of it runs in callbacks of the event loop: between a hint and the READY that it leads to nothing
    waits.
    """

    def __init__(
        self,
        store: Caller,
        facts: Facts,
        registry: Registry,
        mailbox: Mailbox,
        tally: Tally = UNCOUNTED,
    ) -> None:
        self.switchers: dict[str, Switcher] = {}
        self.unknown: set[str] = set()
        """Slices that Redis does not know, or not on this node."""
        self.answered = asyncio.Event()
        """Set with each reply."""
        self._store, self.facts, self._registry, self._mailbox = store, facts, registry, mailbox
        self._tally = tally
        self._results: list[Result] = []
        self._under_way = self._again = self._regular = self._haste = False
        self._epoch, self._unsettled = 0, set[str]()
        self._outage = Outage()
        self._answered_at = self._in_touch_since = float("-inf")
        self._complaints: dict[str, str] = {}
        self._closed = False

    @property
    def in_touch(self) -> bool:
        """Whether Redis answers."""
        return not self._is_out()

    @property
    def in_touch_since(self) -> float:
        """Since when Redis has answered without an outage, on the monotonic clock; now, when it does not."""
        return time.monotonic() if self._is_out() else self._in_touch_since

    def wake(self) -> None:
        """Beat now, or as soon as the beat under way is answered."""
        self._again = True
        self._beat_if_possible()

    def heed(self, message: bytes) -> None:
        """A hint: look at once. Where it is about a switch, at that slice alone, since somebody waits."""
        verb, _, name = message.decode("utf-8", "replace").partition(" ")
        switcher = self.switchers.get(name) if verb == "grant" else None
        if switcher is None or self._under_way or self._closed or not self._store.is_open:
            self.wake()
        else:
            self._look(name, switcher)

    def close(self) -> None:
        """Beat no more, and say nothing of a beat that stays unanswered."""
        self._closed = True

    def tell(self, result: Result) -> None:
        """Send a result with a beat of its own, at once, and again until Redis has it."""
        self._results = [one for one in self._results if one.slice != result.slice] + [result]
        self.wake()
        self._tally.told(result)

    async def told_all(self) -> None:
        """Return when Redis has every result."""
        while self._results:
            self.answered.clear()
            self.wake()
            await self.answered.wait()

    async def run(self) -> None:
        """Beat for ever, also with nothing new. When Redis was away it is told what it has missed."""
        while True:
            try:
                if not self._store.is_open:
                    await self._store.open()
                    self._tally.connected()
            except SlicelockError as failure:  # also rights or a password that were changed
                self._complain(failure)
                await asyncio.sleep(RETRY_S)
            else:
                self._regular = True
                self.wake()
                await asyncio.sleep(self.facts.beat_s)

    # ------------------------------------------------------------ one look

    def _look(self, name: str, switcher: Switcher) -> None:
        """Ask what is wanted on a slice, do at once what moves nothing, and send its result by itself; what
        else it takes is a beat's."""
        self._under_way = True

        def answered(reply: BeatReply | SlicelockError) -> None:
            self._under_way = False
            try:
                done = self._act(name, switcher, reply)
            except Exception:
                done = False
                log.exception("a look's answer could not be dealt with")
            self._again |= not done
            self._beat_if_possible()

        try:
            self._store.send(AskWanted(self.facts.node, name), answered)
        except Exception:
            self._under_way = False
            log.exception("a look could not be sent")

    def _act(self, name: str, switcher: Switcher, reply: BeatReply | SlicelockError) -> bool:
        if isinstance(reply, SlicelockError):
            self._complain(reply)
            return False
        wanted = cast(Mapping[str, Mapping[str, object]], reply.wanted).get(name, {})
        # A run that is new here is a beat's: its processes come with the answer.
        if reply.epoch != self._epoch or wanted.get("run") not in self._registry.runs:
            return False
        before = self._results
        # By want, and the switcher's tell: a beat that begins under this call has one result alone.
        self._haste = not before
        self._want(name, switcher, reply.wanted, regular=False)
        self._haste = False
        return self._results is not before

    # ------------------------------------------------------------ one beat

    def _beat_if_possible(self) -> None:
        if self._again and not self._under_way and not self._closed and self._store.is_open:
            self._beat()

    def _beat(self) -> None:
        self._under_way, self._again = True, False
        regular, self._regular = self._regular, False
        haste, begun = self._haste and not regular, time.monotonic()
        results, exits = self._results, [] if haste else list(self._registry.exits)

        def answered(reply: BeatReply | SlicelockError) -> None:
            if isinstance(reply, BeatReply) and reply.outcome == "OTHER":
                reply = other_agent_error(self.facts.node, self.facts.agent, reply)
            self._hear(reply, results, exits, None if haste else regular)
            if isinstance(reply, SlicelockError):
                self._tally.failed()
            else:
                self._tally.answered(time.monotonic() - begun)

        try:
            call = self.facts.results(results) if haste else self._everything(results, exits)
            self._store.send(call, answered)
        except Exception:
            self._under_way = False
            log.exception("a beat could not be sent")

    def _hear(
        self,
        reply: BeatReply | SlicelockError,
        results: list[Result],
        exits: list[tuple[str, str]],
        regular: bool | None,
    ) -> None:
        """What a beat brought. Whatever is wrong with it, the next beat comes. `regular`: None for one that
        had only results."""
        if isinstance(reply, SlicelockError):
            self._complain(reply)
            self._under_way = False
            return
        try:
            if regular is not None:  # results in haste may come through while every beat is refused
                self._outage.over()
            self._note_answer()
            self._results = [one for one in self._results if one not in results]
            self._registry.told(exits)
            if regular is None:
                self._follow(reply)
            else:
                self._take(reply, regular)
        except Exception:
            log.exception("a beat's answer could not be dealt with")
        self._under_way = False
        self.answered.set()
        self._beat_if_possible()

    def _follow(self, reply: BeatReply) -> None:
        """After results in haste: say the rest when nobody waits; at once when Redis did not expect it."""
        if reply.epoch != self._epoch or any(outcome != "OK" for outcome in reply.results):
            self._again = True
        else:
            asyncio.get_running_loop().call_later(REST_S, self.wake)

    def _is_out(self) -> bool:
        return time.monotonic() - self._answered_at > BEATS_MISSED * self.facts.beat_s

    def _note_answer(self) -> None:
        now = time.monotonic()
        self._in_touch_since = now if self._is_out() else self._in_touch_since
        self._answered_at = now

    def _everything(self, results: list[Result], exits: list[tuple[str, str]]) -> Beat:
        report: dict[str, Any] = {
            "slices": {name: one.shown() for name, one in self.switchers.items()},
            "results": [result.told() for result in results],
            "exits": [{"run": run, "process": process} for run, process in exits],
            "commands": self._mailbox.outgoing(),
            "known": self._registry.known(self._needed()),
        }
        return self.facts.beat(report)

    def _needed(self) -> set[str]:
        """The runs with state here, and those that are wanted."""
        stays = {run for one in self.switchers.values() for run in one.at.page.stays}
        return stays | {one.wanted.run for one in self.switchers.values() if one.wanted.run}

    def _take(self, reply: BeatReply, regular: bool) -> None:
        if reply.epoch != self._epoch:
            self._epoch = reply.epoch
            self._tally.epoch(reply.epoch)
            self._registry.forget_revisions()
        self._registry.learn(reply.runs)
        for name, switcher in self.switchers.items():
            self._want(name, switcher, reply.wanted, regular)
        self._notice_new_life()
        if regular:
            self._registry.prune(self._needed())
        if reply.more:
            asyncio.get_running_loop().call_later(REST_S, self.wake)

    def _notice_new_life(self) -> None:
        """A Redis that has lost writes may give the number of an epoch out twice; its slices settle then, or
        it knows them no more.
        """
        asked = {name: one.wanted for name, one in self.switchers.items()}
        unsettled = {name for name, wanted in asked.items() if wanted.settling or not wanted.known}
        if unsettled != self._unsettled:
            self._unsettled = unsettled
            self._registry.forget_revisions()

    def _want(self, name: str, switcher: Switcher, wanted: Mapping[str, Any], regular: bool) -> None:
        """What is wrong with one slice, its devices included, is no reason to neglect the others."""
        try:
            one = Wanted.of(wanted.get(name))
            if one.known:
                self.unknown.discard(name)
            else:
                self.unknown.add(name)
            if one.asks and one.fence != switcher.wanted.fence:
                self._tally.wished("poll" if regular else "message")
            switcher.want(one, again=regular)
        except Exception as failure:  # noqa: BLE001 - it is told, and the rest goes on
            self._complain_of(f"slice {name}", failure)
        else:
            self._complaints.pop(f"slice {name}", None)

    def _complain_of(self, what: str, failure: Exception) -> None:
        """Once for each reason, until it has passed."""
        text = f"{what}: {failure or type(failure).__name__}"
        if self._complaints.get(what) != text:
            self._complaints[what] = text
            log.warning("%s", text, exc_info=not isinstance(failure, (ValueError, TypeError, SlicelockError)))

    def _complain(self, failure: SlicelockError) -> None:
        if not self._closed and self._outage.is_news(failure):
            log.warning("%s Turns go on.", failure)
