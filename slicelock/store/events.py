"""Reading the pool's stream of events, with no more than a viewer's rights: XRANGE, XREVRANGE and XREAD."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self, cast

from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from slicelock.codec import NO_ANSWER, senseless
from slicelock.errors import ConfigurationError
from slicelock.events import GAP, Event
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store.connect import Link, pack
from slicelock.store.failures import explain
from slicelock.store.opening import Endpoint, opened

BATCH = 1000
REMEMBERED = 1000
"""Ids that are kept to find the last event that a failover has spared."""
START = "0-0"
TRIMMED = "older events were removed from the stream before they were read"
LOST = "Redis has lost events that it had told: it began anew, or another server took over"

Entry = tuple[bytes, list[bytes]]


class EventReader:
    """One connection that reads a pool's events in order, for one thread; opened at the first call.

    It begins with the events from `since_ms` on (Redis' clock), or with those to come (None). A lost
    connection raises StoreError, and the next call opens a new one and goes on after the last event. Where
    events are missing, an event of the type `gap` stands for them and says why.
    """

    def __init__(self, settings: StoreSettings, *, since_ms: int | None = None, name: str = "events") -> None:
        self._endpoint, self._timeout = Endpoint(settings, name), settings.store_timeout
        self._key = Keys(settings.pool).events
        self._after = "" if since_ms is None else _just_before(since_ms)
        self._told: deque[str] = deque(maxlen=REMEMBERED)
        self._link: Link | None = None
        self._seamless = False  # whether nothing can be missing before the next event

    def now_ms(self) -> int:
        """Redis' clock; this machine's where the user may not ask."""
        try:
            seconds, micros = self._ask("TIME")
            return int(seconds) * 1000 + int(micros) // 1000
        except ConfigurationError:
            return time.time_ns() // 1_000_000
        except NO_ANSWER as failure:
            self.close()
            raise senseless("TIME", failure) from None

    def read(self, seconds: float = 0.0) -> list[Event]:
        """The next events, at most about 1,000: at once when there are some, else what comes within
        `seconds`."""
        try:
            return self._read(seconds)
        except NO_ANSWER as failure:
            self.close()
            raise senseless("the stream of events", failure) from None

    def _read(self, seconds: float) -> list[Event]:
        if not self._after:
            self._after = self._end()
            self._told.extend([self._after] if self._after != START else [])
        gap = [] if self._seamless else self._gap()
        entries = self._next(0.0 if gap else seconds)
        self._seamless = 0 < len(entries) < BATCH
        return gap + [self._tell(entry) for entry in entries]

    def read_all(self) -> Iterator[Event]:
        """All events up to now."""
        while batch := self.read():
            yield from batch

    def close(self) -> None:
        """Close the connection; another call opens it again."""
        link, self._link, self._seamless = self._link, None, False
        if link is not None:
            link.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ what is missing

    def _gap(self) -> list[Event]:
        """A gap if the stream does not go on where this reader has left off.

        Asked after each opening, after silence, and by a reader that lags behind.
        """
        if not self._told or self._has(last := self._told[-1]):
            return []
        told, oldest = list(self._told), self._range("-", "+")
        self._told.clear()
        if oldest and _place(oldest[0][0].decode()) > _place(last):
            return [_gap_after(last, TRIMMED)]
        # The end is lost. A new server's clock may be behind, so new events may stand before lost ones.
        spared = told[: bisect_right(told, False, key=lambda one: not self._has(one))]
        self._told.extend(spared)
        self._after = spared[-1] if spared else START
        return [_gap_after(last, LOST)]

    def _has(self, id_: str) -> bool:
        return bool(self._range(id_, id_))

    def _range(self, first: str, last: str) -> list[Entry]:
        return cast(list[Entry], self._ask("XRANGE", self._key, first, last, "COUNT", "1"))

    def _end(self) -> str:
        entries = cast(list[Entry], self._ask("XREVRANGE", self._key, "+", "-", "COUNT", "1"))
        return entries[0][0].decode() if entries else START

    # ------------------------------------------------------------ what is there

    def _next(self, seconds: float) -> list[Entry]:
        block = ("BLOCK", str(max(round(seconds * 1000), 1))) if seconds > 0 else ()
        words = ("XREAD", "COUNT", str(BATCH), *block, "STREAMS", self._key, self._after)
        reply = cast("list[tuple[bytes, list[Entry]]] | None", self._ask(*words, patience=seconds))
        return reply[0][1] if reply else []

    def _tell(self, entry: Entry) -> Event:
        id_, fields = entry[0].decode(), entry[1]
        self._after = id_
        self._told.append(id_)
        texts = _texts(fields)
        return Event.of(id_, dict(zip(texts[::2], texts[1::2], strict=True)))

    # ------------------------------------------------------------ the connection

    def _ask(self, *words: str, patience: float = 0.0) -> Any:
        link = self._link or self._open()
        try:
            link.send_packed_command(pack(words))
            return _answer(link, patience + self._timeout)
        except (RedisError, OSError) as error:
            if not isinstance(error, ResponseError):
                self.close()
            raise explain(error, self._endpoint.place, sent=False) from None
        except BaseException:
            self.close()  # an interrupted exchange leaves half a reply behind
            raise

    def _open(self) -> Link:
        self._link, _ = opened(self._endpoint, self._timeout, primary=False)
        self._seamless = False
        return self._link


def _answer(link: Link, patience: float) -> Any:
    if not link.can_read(patience):
        raise RedisTimeout("no answer in time")
    return link.read_response()


def _texts(fields: list[bytes]) -> list[str]:
    """All fields as text: decoded at once, unless one of them has the sign in it that they are joined by."""
    texts = b"\0".join(fields).decode("utf-8", "replace").split("\0")
    return texts if len(texts) == len(fields) else [one.decode("utf-8", "replace") for one in fields]


def _place(id_: str) -> tuple[int, int]:
    ms, _, number = id_.partition("-")
    return int(ms), int(number)


def _just_before(ms: int) -> str:
    return f"{ms - 1}-{2**64 - 1}" if ms > 0 else START


def _gap_after(id_: str, reason: str) -> Event:
    return Event("", GAP, _place(id_)[0], {"reason": reason})
