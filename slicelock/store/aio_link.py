"""The connection of an event loop, without redis-py: replies and messages come straight from the loop.

redis-py connects (user, password, database, TLS); from then on the connection's bytes come here. To wait
for each reply in a coroutine would cost more than the reply itself, and every hand-over would pay for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import hiredis
from redis.exceptions import InvalidResponse

from slicelock.errors import SlicelockError, StoreUnavailable
from slicelock.settings import StoreSettings
from slicelock.store.connect import AsyncLink, pack
from slicelock.store.opening import Endpoint, opened_async
from slicelock.store.server import Server


class AsyncRawLink(asyncio.Protocol):
    """An open connection. `heard` gets each reply, errors included; `lost` is called once, at its end."""

    def __init__(self, link: AsyncLink, heard: Callable[[Any], None], lost: Callable[[], None]) -> None:
        self._heard, self._lost = heard, lost
        self._nothing, self._closed = object(), False
        inside = cast(Any, link)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=inside._parser.parse_error,
            notEnoughData=self._nothing,
        )
        # The streams are kept, since a writer that nobody holds closes its connection, and taken away from
        # redis-py, which would complain that it was never told to close it.
        self._streams, self._writer = inside._reader, inside._writer
        inside._reader = inside._writer = None
        self._transport: asyncio.Transport = self._writer.transport
        self._transport.set_protocol(self)

    def write(self, words: tuple[str, ...]) -> None:
        self._transport.write(pack(words)[0])

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while not self._closed and (reply := self._reader.gets()) is not self._nothing:
                self._heard(reply)
        except InvalidResponse:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def close(self) -> None:
        """Hear no more, not even what has arrived already."""
        self._closed, self._lost = True, lambda: None
        self._transport.abort()


class AsyncConnection:
    """One connection at a time for one event loop. Several that open it at once share one attempt."""

    def __init__(self, settings: StoreSettings, name: str) -> None:
        self._endpoint, self._timeout = Endpoint(settings, name), settings.store_timeout
        self._link: AsyncRawLink | None = None  # while it is open
        self._server = Server()
        self._opening = asyncio.Lock()
        self._failure: SlicelockError | None = None
        self._failures = self._drops = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._link is not None

    @property
    def server(self) -> Server:
        """The server that it leads to, or led to last."""
        return self._server

    async def open(self) -> None:
        """Connect, if need be; SlicelockError when it cannot be done, or it is dropped in between."""
        failures = self._failures
        async with self._opening:
            if self._link is not None:
                return
            if self._failure and self._failures != failures:
                raise self._failure.with_traceback(None)  # of the attempt that was waited for
            try:
                await self._connect()
            except SlicelockError as failure:
                self._failure, self._failures = failure, self._failures + 1
                raise

    async def _connect(self) -> None:
        drops = self._drops
        link, server = await opened_async(self._endpoint, self._timeout)
        if drops != self._drops:
            await link.disconnect(nowait=True)
            raise StoreUnavailable(
                f"The connection to Redis at {self._endpoint.place} is not wanted any more."
            )
        self._link, self._server = AsyncRawLink(link, self._heard, self._broken), server
        self._endpoint.note(self._link, server)

    def _drop(self) -> None:
        """Close the connection; `open` makes a new one."""
        self._drops += 1
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _heard(self, reply: Any) -> None:
        """A reply or a message has come, or an error in its place."""
        raise NotImplementedError

    def _broken(self) -> None:
        """The other side has closed the connection."""
        self._link = None
