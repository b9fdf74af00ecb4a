"""Listening to channels: one connection of its own, with a watchdog, made anew rather than repaired.

redis-py's PubSub can go deaf without an error. Here a PING must be answered within the watchdog's time; else
the connection counts as lost. Whoever listens looks at everything again after a new `open()`.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from slicelock.errors import StoreTimeout, StoreUnavailable
from slicelock.settings import StoreSettings
from slicelock.shortage import explained
from slicelock.store.connect import pack
from slicelock.store.failures import explain
from slicelock.store.hints import Hint
from slicelock.store.opening import Endpoint, opened
from slicelock.store.raw_link import RawLink
from slicelock.store.server import Server
from slicelock.store.sync import Store

WATCHDOG_S = 4.0  # silence after which a subscription counts as lost; a PING goes out at half of it
REOPEN_S = 0.5
PING = pack(("PING",))[0]


class _Silence:
    """When a PING is due, and when there has been silence for too long."""

    def __init__(self, watchdog_s: float) -> None:
        self._limit = watchdog_s
        self.heard()

    def heard(self) -> None:
        self._last, self._pinged = time.monotonic(), False

    def ping_due(self) -> bool:
        """Whether to send a PING now; true once for each silence."""
        if self._pinged or self.left() > self._limit / 2:
            return False
        self._pinged = True
        return True

    def left(self) -> float:
        """Seconds until the connection counts as lost."""
        return self._last + self._limit - time.monotonic()

    def until_next(self) -> float:
        """Seconds until there is something to do."""
        return max(self.left() if self._pinged else self.left() - self._limit / 2, 0.0)


def message_in(reply: Any) -> tuple[bytes, bytes] | None:
    """The channel and the text, if it is a message."""
    match reply:
        case [b"message", bytes(channel), bytes(text)]:
            return channel, text
        case _:
            return None


def confirms(reply: Any) -> bool:
    """Whether a channel is subscribed now. A message that comes before all are needs no reading: one looks at
    everything then."""
    return isinstance(reply, list) and reply[:1] == [b"subscribe"]  # pyright: ignore[reportUnknownArgumentType]


class Bell:
    """Ends another thread's waiting; safe to ring from any thread and signal handler, also when closed.

    It is closed when nobody has it any more: whoever should do so may not have come into being.
    """

    _fd = -1

    def __init__(self) -> None:
        with explained("Messages from Redis cannot be waited for", "Try again."):
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor that can be read once it has been rung; -1 when closed."""
        return self._fd

    def ring(self) -> None:
        """Let the waiting end, or the next one."""
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            os.eventfd_write(self._fd, 1)

    def heard(self) -> None:
        """Be silent again."""
        with contextlib.suppress(OSError, ValueError):  # silent already, or closed meanwhile
            os.eventfd_read(self._fd)

    def close(self) -> None:
        """For good."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Subscription:
    """Listens for one thread at a time; any other may end its waiting. Closed until `open()`.

    `beside` makes the calls of whoever listens. An old primary may live on and answer PINGs: a connection to
    another server than the calls go to counts as lost.
    """

    def __init__(
        self,
        settings: StoreSettings,
        channels: Sequence[str],
        *,
        beside: Store | None = None,
        name: str = "hints",
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        self._endpoint, self._timeout = Endpoint(settings, name), settings.store_timeout
        self._beside, self._server = beside, Server()
        self._channels, self._silence = tuple(channels), _Silence(watchdog_s)
        self._link: RawLink | None = None  # while it is open
        self._bell = Bell()

    @property
    def is_open(self) -> bool:
        """Whether the channels are subscribed, as far as is known."""
        return self._link is not None

    def open(self, patience: float | None = None) -> None:
        """Connect, subscribe, and return when the server has confirmed; StoreError when it does not."""
        self.drop()
        limit = self._timeout if patience is None else min(patience, self._timeout)
        dialled, server = opened(self._endpoint, limit)
        link = RawLink(dialled, limit)
        try:
            link.send(pack(("SUBSCRIBE", *self._channels))[0])
            confirmed = 0
            while confirmed < len(self._channels):
                confirmed += confirms(link.receive())
            link.limit(0.0)
        except (RedisError, OSError) as error:
            link.close()
            raise explain(error, self._endpoint.place, sent=False) from None
        except BaseException:
            link.close()
            raise
        self._link, self._server = link, server
        self._silence.heard()

    def listen(self, seconds: float, bell: Bell | None = None) -> list[Hint]:
        """The messages that come within `seconds`, at once when there are some; none after a `wake`, or once
        the `bell` of another listener rings.

        StoreError when the connection is lost: `open()` it again.
        """
        until = time.monotonic() + seconds
        while True:
            left, link = max(until - time.monotonic(), 0.0), self._link
            limit = min(left, self._silence.until_next()) if link else left
            woken = _wait(bell or self._bell, limit, link)
            hints = self._read(link) if link else []
            if hints or woken or time.monotonic() >= until:
                return hints

    def rest(self, seconds: float) -> None:
        """Wait for a `wake` alone, while another thread listens."""
        _wait(self._bell, seconds)

    def wake(self) -> None:
        """Let `listen` or `rest` return now; safe from any thread and signal handler."""
        self._bell.ring()

    def drop(self) -> None:
        """Close the connection."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close everything; for good."""
        self.drop()
        self._bell.close()

    def _read(self, link: RawLink) -> list[Hint]:
        try:
            if replies := link.arrived():
                self._silence.heard()
                return [Hint.of(*message) for reply in replies if (message := message_in(reply))]
            if self._silence.ping_due():
                self._refuse_other_server()
                link.send(PING)
        except (RedisError, OSError) as error:
            self.drop()
            raise explain(error, self._endpoint.place, sent=True) from None
        if self._silence.left() <= 0:
            self.drop()
            raise StoreTimeout(f"Redis at {self._endpoint.place} has fallen silent.")
        return []

    def _refuse_other_server(self) -> None:
        if self._beside is not None and self._server.differs(self._beside.server):
            self.drop()
            raise StoreUnavailable(
                f"Messages came from another server than the one at {self._beside.place} that is asked."
            )


def _wait(bell: Bell, seconds: float, link: RawLink | None = None) -> bool:
    """Wait until something can be read or the time has passed; whether the bell has rung, or is closed."""
    poller = select.poll()
    try:
        for one in (bell, link):
            if one is not None:
                poller.register(one, select.POLLIN)
    except ValueError:
        return True
    rang = any(fd == bell.fileno() for fd, _ in poller.poll(seconds * 1000))
    if rang:
        bell.heard()
    return rang
