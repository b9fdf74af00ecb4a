"""Listening to channels for an event loop: each message goes to a callback, as soon as it has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from slicelock.errors import SlicelockError, StoreTimeout, StoreUnavailable
from slicelock.settings import StoreSettings
from slicelock.store.aio import AsyncStore
from slicelock.store.aio_link import AsyncConnection, AsyncRawLink
from slicelock.store.failures import explain
from slicelock.store.subscribe import REOPEN_S, WATCHDOG_S, confirms, message_in


class AsyncSubscription(AsyncConnection):
    """Listens to channels. `heed` gets each message, and an empty one after connecting: some were missed.

    `beside` makes the calls of whoever listens. An old primary may live on, answer PINGs, and tell what is
    long over: a connection to another server than the calls go to is made anew by `watch`, and until then its
    messages are passed on as empty ones.
    """

    def __init__(
        self,
        settings: StoreSettings,
        channels: Sequence[str],
        heed: Callable[[bytes], None],
        *,
        beside: AsyncStore | None = None,
        name: str = "hints",
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        super().__init__(settings, name)
        self._beside = beside
        self._channels, self._heed, self._watchdog = tuple(channels), heed, watchdog_s
        self._confirmed: asyncio.Future[None] | None = None
        self._missing = 0
        self._last = 0.0

    async def _connect(self) -> None:
        """Connect, subscribe, and return when the server has confirmed."""
        await super()._connect()
        assert self._link is not None
        await self._subscribe(self._link)
        self._heed(b"")

    async def _subscribe(self, link: AsyncRawLink) -> None:
        confirmed = self._confirmed = asyncio.get_running_loop().create_future()
        self._missing = len(self._channels)
        link.write(("SUBSCRIBE", *self._channels))
        try:
            async with asyncio.timeout(self._timeout):
                await confirmed
        except TimeoutError:
            self._drop()
            raise StoreTimeout(f"Redis at {self._endpoint.place} did not confirm a subscription.") from None
        except BaseException:
            self._drop()
            raise

    async def watch(self) -> None:
        """Keep it alive for ever: a connection that is lost, astray or has fallen silent is made anew."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(REOPEN_S if self._link is None else self._watchdog / 4)
            silence = loop.time() - self._last
            if self._link is None or silence > self._watchdog or self._is_astray():
                self._drop()
                try:
                    await self.open()
                except SlicelockError:
                    continue  # whoever calls scripts says that Redis is away
            elif silence > self._watchdog / 2:
                self._link.write(("PING",))

    def close(self) -> None:
        """Close the connection; an `open` under way fails."""
        self._drop()

    def _drop(self) -> None:
        super()._drop()
        self._settle(StoreUnavailable(f"The subscription at {self._endpoint.place} was closed."))

    def _heard(self, reply: Any) -> None:
        self._last = asyncio.get_running_loop().time()
        if isinstance(reply, RedisError):
            self._settle(explain(reply, self._endpoint.place, sent=False))
        elif message := message_in(reply):
            self._heed(b"" if self._is_astray() else message[1])
        elif confirms(reply):
            self._missing -= 1
            if not self._missing:
                self._settle()

    def _is_astray(self) -> bool:
        return self._beside is not None and self._server.differs(self._beside.server)

    def _broken(self) -> None:
        super()._broken()
        self._settle(StoreUnavailable(f"Redis at {self._endpoint.place} has closed the connection."))

    def _settle(self, failure: SlicelockError | None = None) -> None:
        if self._confirmed is None or self._confirmed.done():
            return
        if failure is None:
            self._confirmed.set_result(None)
        else:
            self._confirmed.set_exception(failure)
