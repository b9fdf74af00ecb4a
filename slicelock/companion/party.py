"""This process as a party of one pool: its identity, its ledger, its connections, its companion.

At most three connections: one for calls, which threads and the companion share; one for messages; and one for
the calls of an event loop, if there is one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from concurrent.futures import CancelledError
from pathlib import Path
from weakref import WeakKeyDictionary

from slicelock.codec import ScriptCall
from slicelock.companion.evictor import Evictor
from slicelock.companion.hook_runner import Offer
from slicelock.companion.inbox import LoopInbox, ThreadInbox
from slicelock.companion.launch import who_am_i
from slicelock.companion.thread import Companion
from slicelock.errors import SlicelockError, StoreTimeout, TurnError
from slicelock.flow import Call, Flow, Wait
from slicelock.loops import running_loop
from slicelock.picture import Picture
from slicelock.protocol import Ledger, Part, Waker, Who, acquire, farewell, register
from slicelock.settings import Mode, Settings
from slicelock.store import AsyncStore, Epochs, Store
from slicelock.wire import Status, StatusReply

log = logging.getLogger("slicelock")

DROPPED_S = 0.01  # between two looks at a turn that was dropped
FAREWELL_S = 3.0  # a process that ends waits for Redis no longer than this


class Party:
    """One member of one run, in one pool. `foreign`: made by a parent process; a child owns nothing of it."""

    def __init__(self, settings: Settings, who: Who, *, overlay: Path | None = None) -> None:
        self.settings, self.who, self._overlay = settings, who, overlay
        self.ledger = Ledger(who)
        self._epochs = Epochs()
        self.store = Store(settings, name=who.job, overlay=overlay, epochs=self._epochs)
        self.evictor = Evictor(who, self.store) if settings.mode is Mode.ALWAYS_EVICT else None
        self._ledgers = (self.ledger, *((self.evictor.ledger,) if self.evictor else ()))
        self.companion = Companion(settings, self.ledger, self.store, *self._ledgers[1:])
        self.foreign = self.closed = self._started = False
        self._async_stores: dict[asyncio.AbstractEventLoop, AsyncStore] = {}
        self._starting = threading.Lock()
        self._starting_in: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    # ------------------------------------------------------------ starting

    def start(self) -> None:
        """Make the process known and listen to messages; StoreError when Redis was never reached.

        Messages that cannot be subscribed are no error: whoever waits also asks by itself.
        """
        self.refuse_child()
        if self._started and self.companion.alive:
            return
        with self._starting:
            if not self.ledger.registered:
                self.store.drive(register(self.ledger))
                with contextlib.suppress(Exception):  # only for a warning: it stops no job
                    self._note_namesakes(self.store.run(Status()))
            self.companion.ensure_running()
        if not self._started:
            inbox = ThreadInbox()
            self._await_messages(inbox)
            inbox.wait(self.settings.store_timeout)
            self._started = True

    async def start_async(self) -> None:
        """As `start`, without blocking the event loop."""
        self.refuse_child()
        if self._started and self.companion.alive:
            return
        async with self._starting_in.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            store = self.async_store()
            if not self.ledger.registered:
                await store.drive(register(self.ledger))
                with contextlib.suppress(Exception):
                    self._note_namesakes(await store.run(Status()))
            self.companion.ensure_running()
            if not self._started:
                inbox = LoopInbox()
                self._await_messages(inbox)
                await inbox.wait(self.settings.store_timeout)
                self._started = True

    def acquire(self, part: Part) -> Flow[None]:
        """Wait until the part's turn begins. One in its lane that nobody has any more is ended first.

        Raises what `protocol.acquire` does, and NotGranted when the state of a hook is away.
        """
        while (other := self.ledger.open_parts.get(part.lane)) and other.dropped:
            self.companion.wake()
            yield Wait(DROPPED_S)
        yield from acquire(self.ledger, part)
        if not part.agentless:
            self.companion.hooks.check_back(part.slices_left)

    def async_store(self) -> AsyncStore:
        """The store for the running event loop."""
        loop = asyncio.get_running_loop()
        if (store := self._async_stores.get(loop)) is None:
            for ended in [other for other in self._async_stores if other.is_closed()]:
                del self._async_stores[ended]
            store = AsyncStore(self.settings, name=self.who.job, overlay=self._overlay, epochs=self._epochs)
            self._async_stores[loop] = store
        return store

    def offer(self, offer: Offer) -> None:
        """Tell agents of a hook: at once when its slices are named, else with the first turn."""
        self.refuse_child()
        self.companion.hooks.offer(offer)
        self.ledger.offer([each.described() for each in self.companion.hooks.offers], offer.slices)
        if offer.slices:
            self.start()
        self.companion.wake()

    def _await_messages(self, inbox: Waker) -> None:
        self.companion.on_ready.append(inbox)
        if self.companion.listening:
            inbox.put()

    def _note_namesakes(self, reply: StatusReply) -> None:
        """Another run of the same job is another party; it may be what was meant, or a forgotten process."""
        picture = Picture.of(self.settings.pool, reply.picture)
        seen = [one.holder for one in picture.slices if one.holder]
        seen += [request for one in picture.slices for request in one.queue]
        for run in sorted({view.run for view in seen if view.job == self.who.job} - {self.who.run}):
            log.warning(
                "job %s has another run, %s; %s is a party of its own", self.who.job, run, self.who.run
            )

    # ------------------------------------------------------------ ending

    def refuse_child(self) -> None:
        """Raise TurnError in a child process: it would speak over its parent's connection, as its parent."""
        if self.foreign:
            raise TurnError(
                f"Run {self.who.run} was begun here by the parent process, not by this child.",
                advice="Take the child's turns on a Slice, which finds out that it is another process.",
            )

    def abandon(self) -> None:
        """This is a child process: it renews, yields and closes nothing of its parent's."""
        self.foreign = True

    def close(self) -> None:
        """Yield what is held, cancel what waits, say goodbye, and end the companion. For good."""
        if self.foreign or self.closed:
            return
        self.closed = True
        until = time.monotonic() + FAREWELL_S
        for ledger in self._ledgers:
            self._say_farewell(ledger, until)
        self.companion.retire()
        self.store.close(max(until - time.monotonic(), 0.0))  # ends a call of the companion that hangs
        self.companion.stop()
        for loop, store in self._async_stores.items():
            _close_in(loop, store, until)

    def _say_farewell(self, ledger: Ledger, until: float) -> None:
        try:
            for step in farewell(ledger):
                assert isinstance(step, Call)
                self._tell(step.call, until)
        except SlicelockError as failure:
            log.warning("the process ends without Redis: %s", failure)

    def _tell(self, call: ScriptCall, until: float) -> None:
        try:
            self.store.run(call, max(until - time.monotonic(), 0.05))
        except StoreTimeout:  # perhaps a connection that was closed meanwhile
            self.store.run(call, max(until - time.monotonic(), 0.05))


def _close_in(loop: asyncio.AbstractEventLoop, store: AsyncStore, until: float) -> None:
    """Close a loop's store from any thread, also from that loop's own; a loop that ended has done it."""
    if not loop.is_running():
        return
    closing = asyncio.run_coroutine_threadsafe(store.aclose(), loop)
    if loop is not running_loop():
        with contextlib.suppress(TimeoutError, CancelledError):
            closing.result(max(until - time.monotonic(), 0.0))


_parties: weakref.WeakSet[Party] = weakref.WeakSet()
_by_settings: dict[Settings, Party] = {}
_lock = threading.Lock()


def party_of(settings: Settings) -> Party:
    """This process's party by its settings; a new one after a fork, or once it was closed.

    Settings that name the same member of the same run in the same pool share one.
    """
    with _lock:
        party = _by_settings.get(settings)
        if party is None or party.closed:
            who = who_am_i(settings, os.environ)
            same = [other for other in _by_settings.values() if _same(other, settings, who)]
            party = _by_settings[settings] = same[0] if same else Party(settings, who)
            _parties.add(party)
        return party


def _same(party: Party, settings: Settings, who: Who) -> bool:
    there = (party.settings.url(), party.settings.pool, party.who.run, party.who.member)
    return not party.closed and there == (settings.url(), settings.pool, who.run, who.member)


def close_all() -> None:
    """Close every party of this process."""
    with _lock:
        parties, _ = list(_by_settings.values()), _by_settings.clear()
    for party in parties:
        party.close()


_inherited: list[Party] = []  # a child keeps them, so that no finaliser touches what is the parent's


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_by_settings.values())
    _by_settings.clear()
    for party in list(_parties):
        party.abandon()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close_all)
