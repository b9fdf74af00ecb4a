"""The agent's beats: each second, at each hint, and at once with everything new."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from slicelock.errors import StoreError
from slicelock.wire import Beat, BeatReply, Command, R
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.reconcile import Wanted
from slicelock_agent.registry import Registry
from slicelock_agent.switcher import Result, Switcher

log = logging.getLogger("slicelock_agent")

RETRY_S = 0.5
"""Between two tries while Redis does not answer."""
REST_S = 0.01
"""Before a beat that only has more to reap, so that a large backlog does not keep Redis busy alone."""


class Runner(Protocol):
    """Runs scripts: an `AsyncStore`."""

    async def run(self, command: Command[R]) -> R: ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What every beat says of the agent. `beat_s`: seconds between two."""

    node: str
    boot: str
    version: str
    silent_ms: int
    beat_s: float


class Pulse:
    """Sends beats and passes on what they bring. One beat at a time; what comes up meanwhile goes with the
    next one.
    """

    def __init__(self, store: Runner, facts: Facts, registry: Registry, mailbox: Mailbox) -> None:
        self.switchers: dict[str, Switcher] = {}
        self.unknown: set[str] = set()
        """Slices that Redis does not know, or not on this node."""
        self.answered = asyncio.Event()
        """Set with the first reply."""
        self._store, self._facts, self._registry, self._mailbox = store, facts, registry, mailbox
        self._results: list[Result] = []
        self._wake, self._sent = asyncio.Event(), asyncio.Event()
        self._epoch = 0
        self._next = 0.0
        self._silence_told = False

    def wake(self) -> None:
        """Beat now."""
        self._wake.set()

    def tell(self, result: Result) -> None:
        """Send a result with a beat of its own, at once, and again until Redis has it."""
        self._results = [one for one in self._results if one.slice != result.slice] + [result]
        self._wake.set()

    async def told_all(self) -> None:
        """Return when Redis has every result."""
        while self._results:
            self._sent.clear()
            self._wake.set()
            await self._sent.wait()

    async def run(self) -> None:
        """Beat for ever. While Redis is away nothing is lost: it is told what it has missed."""
        while True:
            await self._due()
            try:
                await self.beat()
            except StoreError as failure:
                self._complain(failure)
                await asyncio.sleep(RETRY_S)

    async def beat(self) -> None:
        """One beat, and what follows from it at once. StoreError: it may or may not have arrived."""
        self._wake.clear()
        regular = time.monotonic() >= self._next
        results, exits = self._results, list(self._registry.exits)
        reply = await self._store.run(self._command(results, exits))
        self._silence_told = False
        if regular:
            self._next = time.monotonic() + self._facts.beat_s
        self._results = [one for one in self._results if one not in results]
        self._sent.set()
        self._registry.told(exits)
        self._take(reply, regular)

    async def _due(self) -> None:
        if self._wake.is_set():
            return
        timer = asyncio.get_running_loop().call_later(max(0.0, self._next - time.monotonic()), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _command(self, results: list[Result], exits: list[tuple[str, str]]) -> Beat:
        facts = self._facts
        needed = self._needed()
        report = {
            "slices": {name: one.shown() for name, one in self.switchers.items()},
            "results": [result.told() for result in results],
            "exits": [{"run": run, "process": process} for run, process in exits],
            "commands": self._mailbox.outgoing(),
            "known": self._registry.known(needed),
        }
        return Beat(facts.node, facts.boot, facts.version, facts.silent_ms, report)

    def _needed(self) -> set[str]:
        """The runs with state here, and those that are wanted."""
        stays = {run for one in self.switchers.values() for run in one.at.page.stays}
        return stays | {one.wanted.run for one in self.switchers.values() if one.wanted.run}

    def _take(self, reply: BeatReply, regular: bool) -> None:
        if reply.epoch != self._epoch:
            self._epoch = reply.epoch
            self._registry.forget_revisions()
        self._registry.learn(reply.runs)
        for name, switcher in self.switchers.items():
            self._want(name, switcher, reply.wanted, regular)
        if regular:
            self._registry.prune(self._needed())
        if reply.more:
            asyncio.get_running_loop().call_later(REST_S, self._wake.set)
        self.answered.set()

    def _want(self, name: str, switcher: Switcher, wanted: Mapping[str, Any], regular: bool) -> None:
        try:
            one = Wanted.of(wanted.get(name))
        except (ValueError, TypeError) as failure:
            log.warning("slice %s: Redis wants what makes no sense: %s", name, failure)
            return
        if one.known:
            self.unknown.discard(name)
        else:
            self.unknown.add(name)
        switcher.want(one, again=regular)

    def _complain(self, failure: StoreError) -> None:
        """Once for each silence."""
        if not self._silence_told:
            self._silence_told = True
            log.warning("%s Turns go on.", failure)
