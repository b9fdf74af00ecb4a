"""`always-evict`: after each turn of the job, an empty turn of another run, so that its state is moved."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace

from slicelock.companion.inbox import ThreadInbox
from slicelock.companion.launch import short_name
from slicelock.errors import SlicelockError, StoreUnavailable
from slicelock.events import EVICTING
from slicelock.protocol import Ledger, Part, Who, Wish, acquire, give_back
from slicelock.shortage import explained, start
from slicelock.store import Store

log = logging.getLogger("slicelock")

ASKED_S = 5.0


class Evictor:
    """Asks for the slices while the job still has them, so that it is next in the queue."""

    def __init__(self, who: Who, store: Store) -> None:
        run = short_name(f"{who.run}.evict-{who.member}")
        self.who = replace(who, run=run, member="0", members=1)
        self.ledger, self._store = Ledger(self.who), store

    def ask(self, slices: tuple[str, ...], lane: str) -> None:
        """Return once the request is in the queue; a thread takes the turn and yields it at once."""
        asked = threading.Event()
        part = Part(Wish(slices, lane, phase=EVICTING), self.who.run)
        work = threading.Thread(target=self._take, args=(part, asked), name="slicelock-evictor", daemon=True)
        try:
            start(work)
        except StoreUnavailable as failure:
            _not_had(slices, failure)
        else:
            asked.wait(ASKED_S)

    async def ask_in_loop(self, slices: tuple[str, ...], lane: str) -> None:
        """As `ask`, without blocking the event loop."""
        try:
            with explained("The loop's thread for it cannot be started", "Try again."):
                await asyncio.to_thread(self.ask, slices, lane)
        except StoreUnavailable as failure:
            _not_had(slices, failure)

    def _take(self, part: Part, asked: threading.Event) -> None:
        part.inbox = inbox = _Noticed(asked)
        try:
            self._store.drive(acquire(self.ledger, part), inbox)
            self._store.drive(give_back(self.ledger, part))
        except SlicelockError as failure:
            _not_had(part.wish.slices, failure)
        finally:
            asked.set()


def _not_had(slices: tuple[str, ...], failure: SlicelockError) -> None:
    log.warning("the empty turn on %s was not had: %s", " ".join(slices), failure)


class _Noticed(ThreadInbox):
    """Says when the flow has asked and begins to wait."""

    def __init__(self, asked: threading.Event) -> None:
        super().__init__()
        self._asked = asked

    def wait(self, seconds: float) -> bool:
        self._asked.set()
        return super().wait(seconds)
