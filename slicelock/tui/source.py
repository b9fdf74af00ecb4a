"""Asks Redis, on a thread of its own, so that the view never waits: at each refresh one `status` and what is
new in the stream of events; and what an operator has said yes to.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from slicelock.errors import ConfigurationError, SlicelockError, StoreError
from slicelock.events import Event
from slicelock.picture import Picture
from slicelock.settings import StoreSettings
from slicelock.store import EventReader, PrimaryWatch, Store
from slicelock.store.probe import may_write
from slicelock.tui.intents import DrainSlices, Intent, RevokeTurn
from slicelock.tui.tracks import KEPT_MS
from slicelock.wire import Drain, Revoke, Status

QUEUE_LIMIT = 1
"""Waiters that a refresh brings for each slice, and twenty times as many for the selected one; with 100
slices more would cost Redis too much."""
WHY = "an operator revoked it in slicelock top"


@dataclass(frozen=True, slots=True)
class Seen:
    """A refresh: the picture, and what has happened since the last one."""

    picture: Picture
    events: tuple[Event, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Away:
    """Redis did not answer."""

    why: str


@dataclass(frozen=True, slots=True)
class Rights:
    """Whether this user may write."""

    may_act: bool


@dataclass(frozen=True, slots=True)
class Said:
    """How an operator's action went."""

    text: str
    bad: bool = False


Message = Seen | Away | Rights | Said


class Source:
    """Puts messages into `inbox` and calls `wake` after each. `ask` takes an operator's action."""

    def __init__(
        self,
        settings: StoreSettings,
        refresh_s: float,
        wake: Callable[[], None] = lambda: None,
        *,
        readonly: bool = False,
    ) -> None:
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.focus = ""
        self._settings, self._refresh_s, self._wake = settings, refresh_s, wake
        self._store = Store(settings, name="top")
        self._events: EventReader | None = None
        self._asked: SimpleQueue[Intent] = SimpleQueue()
        self._look, self._stopped = threading.Event(), False
        self._watch = PrimaryWatch(settings, self._look.set)
        self._rights_known = readonly
        self._thread = threading.Thread(target=self._run, name="slicelock-top", daemon=True)

    @property
    def place(self) -> str:
        """Where Redis is; after a failover that Sentinels tell of, the new primary."""
        return self._store.place

    def start(self) -> None:
        """Begin to ask."""
        self._watch.start()
        self._thread.start()

    def ask(self, intent: Intent) -> None:
        """Do this as soon as Redis is free; how it went comes as a message, and the view is fresh then."""
        self._asked.put(intent)
        self._look.set()

    def close(self, patience_s: float = 0.5) -> None:
        """Ask no more. A call that Redis does not answer is left to the end of the process."""
        self._stopped = True
        self._look.set()
        self._watch.close()
        if self._thread.ident is not None:
            self._thread.join(patience_s)
        if not self._thread.is_alive():
            self._store.close()
            if self._events:
                self._events.close()

    # ------------------------------------------------------------ one refresh

    def look(self) -> Seen:
        """A picture and the events since the last one; StoreError when Redis does not answer."""
        reply = self._store.run(Status(queue_limit=QUEUE_LIMIT, focus=self.focus))
        picture = Picture.of(self._settings.pool, reply.picture)
        return Seen(picture, tuple(self._happened(picture.now_ms)), self.place)

    def _happened(self, now_ms: int) -> list[Event]:
        """What is new in the stream, up to the picture's time: what comes meanwhile belongs to the next one.
        A user who may not read it sees the rest all the same."""
        if self._events is None:
            self._events = EventReader(self._settings, since_ms=max(0, now_ms - KEPT_MS), name="top-events")
        found: list[Event] = []
        with contextlib.suppress(ConfigurationError):
            while batch := self._events.read():
                found += batch
                if batch[-1].t_ms > now_ms:
                    break
        return found

    def _run(self) -> None:
        while not self._stopped:
            begun = time.monotonic()
            self._put(self._refresh())
            self._probe()
            self._look.wait(max(0.0, begun + self._refresh_s - time.monotonic()))
            self._look.clear()
            self._act()

    def _refresh(self) -> Message:
        try:
            return self.look()
        except StoreError as failure:
            return Away(str(failure))
        except SlicelockError as failure:
            return Away(f"{failure} {failure.advice}".strip())
        except Exception as fault:  # noqa: BLE001 - shown; a view that stands still without a word would lie
            return Away(f"what Redis says cannot be shown: {type(fault).__name__}: {fault}")

    def _probe(self) -> None:
        if self._rights_known:
            return
        with contextlib.suppress(SlicelockError):
            self._put(Rights(may_write(self._settings)))
            self._rights_known = True

    def _act(self) -> None:
        while not self._stopped:
            try:
                intent = self._asked.get_nowait()
            except Empty:
                return
            self._put(self._do(intent))

    def _do(self, intent: Intent) -> Said:
        try:
            return Said(
                _revoked(self._store, intent)
                if isinstance(intent, RevokeTurn)
                else _drained(self._store, intent)
            )
        except SlicelockError as failure:
            return Said(f"That was not done: {failure}", bad=True)

    def _put(self, message: Message) -> None:
        self.inbox.put(message)
        self._wake()


def _revoked(store: Store, intent: RevokeTurn) -> str:
    reply = store.run(Revoke(intent.request, WHY))
    if reply.outcome == "ENDED":
        return f"{intent.request} had ended already ({reply.ended})"
    return f"revoked {intent.request} on {intent.name}"


def _drained(store: Store, intent: DrainSlices) -> str:
    for name in intent.names:
        store.run(Drain(name, intent.draining))
    return (
        f"{intent.what} is draining: nothing new starts there"
        if intent.draining
        else f"{intent.what} goes on"
    )
