"""Who hears the messages: the companion, or the one thread that waits for its turn.

To be woken by another thread takes longer than the message itself, and nothing else is to be done meanwhile.
So a thread that waits listens, as long as no other one does, and heeds for all what it hears.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from slicelock.errors import SlicelockError
from slicelock.store import Bell, Hint, Subscription

LENT_S = 0.5  # the companion listens so often while who waits is busy with a call, or has ended unseen


class Listener(Protocol):
    """Who waits; `noted`: whether something has come for it."""

    @property
    def noted(self) -> bool: ...


class Ear:
    """A subscription that is lent to one listener at a time. Whoever has the lock is the one to read.

    An interrupt may hit a listener anywhere: it is taken for gone as soon as `waits` says so, and what it may
    have lost of a message is made up for by a new connection.

    | what         | who writes it                                           | who reads it                |
    |--------------|---------------------------------------------------------|-----------------------------|
    | `_lock`      | whoever reads or opens the subscription has it; `close` | `hear`: is the companion    |
    |              | waits for it, but not for ever                          | listening?                  |
    | `_lent`      | a listener takes it, in one operation, and gives it     | both, without the lock; the |
    |              | back; the companion takes it back from one that waits   | companion looks again once  |
    |              | no more; all without the lock                           | it has the lock             |
    | `_listening` | the listener, under the lock                            | `tell`, from any thread     |
    | `_closed`    | `close`, before it has the lock, and for good           | all, with or without it     |
    """

    def __init__(
        self, subscription: Subscription, heed: Callable[[Hint], None], waits: Callable[[Listener], bool]
    ) -> None:
        self._subscription, self._heed, self._waits = subscription, heed, waits
        self._lock = threading.Lock()
        self._lent: dict[str, Listener] = {}  # at most one, "to" it; taken in one step
        self._listening: Listener | None = None
        self._bell = Bell()
        self._closed = False

    # ------------------------------------------------------------ who waits

    def hear(self, listener: Listener, until: float) -> None:
        """Listen until something is noted, or until this monotonic time; return at once when that cannot be:
        another one listens, or the connection is lost."""
        if self._closed or not self._subscription.is_open:
            return
        if self._lent.setdefault("to", listener) is not listener:
            return
        if self._lock.locked():
            self._subscription.wake()  # the companion lets go
        with self._lock:
            self._listening = listener
            try:
                self._listen(listener, until)
            except SlicelockError:
                self.give_back(listener)
            except BaseException:
                self._subscription.drop()
                raise
            finally:
                self._listening = None

    def give_back(self, listener: Listener) -> None:
        """Wait no more; the companion listens again."""
        if self._lent.get("to") is listener:
            self._lent.pop("to", None)
            self._subscription.wake()

    def tell(self, listener: Listener) -> None:
        """Something is noted for it."""
        if self._listening is listener:
            self._bell.ring()

    def _listen(self, listener: Listener, until: float) -> None:
        while not (listener.noted or self._closed) and self._subscription.is_open:
            if (left := until - time.monotonic()) <= 0:
                return
            for hint in self._subscription.listen(left, self._bell):
                self._heed(hint)

    # ------------------------------------------------------------ the companion

    def listen(self, seconds: float) -> list[Hint]:
        """The messages that come within `seconds`; none while another one listens, or once it is closed.
        Errors as of `Subscription.listen`."""
        if self._closed:
            return []
        if (lent := self._lent.get("to")) and not self._waits(lent):
            self.give_back(lent)
        # Not for ever: when it is taken back from two at once, a third may hear for whom it is not lent.
        if not self._lent and self._lock.acquire(timeout=max(0.0, min(seconds, LENT_S))):
            try:
                if not self._lent:
                    return self._subscription.listen(seconds)
            finally:
                self._lock.release()
        self._subscription.rest(min(seconds, LENT_S))
        if not self._lock.acquire(blocking=False):
            return []
        try:
            return self._subscription.listen(0.0)
        finally:
            self._lock.release()

    def open(self, patience: float) -> None:
        """Subscribe, unless it is closed; StoreError when that is not possible."""
        with self._lock:
            if not self._closed:
                self._subscription.open(patience)
            if self._closed:  # meanwhile
                self._subscription.drop()

    def close(self, patience: float) -> None:
        """Close the connection, also when somebody waits, who does so without messages from now on."""
        self._closed = True
        self._bell.ring()
        locked = self._lock.acquire(timeout=patience)
        self._subscription.close()
        self._bell.close()
        if locked:
            self._lock.release()
