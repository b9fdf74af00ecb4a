"""Opening a connection to the primary: found, connected, and looked at; whole, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError, ResponseError

from slicelock.errors import StoreUnavailable
from slicelock.settings import StoreSettings
from slicelock.shortage import explained
from slicelock.store.address import target_of
from slicelock.store.connect import AsyncLink, Dialer, Link, cut, pack
from slicelock.store.failures import explain
from slicelock.store.sentinel import Primary, Route, Undecided, route_to
from slicelock.store.server import GREETING, Server

PRIMARY_S = 1.5  # for a primary that Sentinels have named: if it hangs, they may soon name another
AGAIN_S = 0.2


class Endpoint:
    """Where a pool's Redis is. `place` names it, without credentials; with Sentinels, the last one found."""

    def __init__(self, settings: StoreSettings, name: str) -> None:
        target = target_of(settings)
        self.dialer = Dialer(target.options, tls=target.tls, name=name, timeout=settings.store_timeout)
        self.route: Route | None = route_to(target) if target.sentinels else None
        self.place = target.place
        self.under_way: Link | None = None  # being opened
        self._met = self._given_up = False

    def find(self, patience: float) -> Primary | None:
        """Ask the Sentinels, if there are any, for the primary; SlicelockError when they do not know."""
        if self.route is None:
            return None
        found = self.route.find(patience)
        self.place = f"{found.address[0]}:{found.address[1]} ({self.route.service})"
        return found

    async def find_async(self, patience: float) -> Primary | None:
        """As `find`, without holding up the event loop."""
        if self.route is None:
            return None
        with explained("The Sentinels cannot be asked", "Try again."):
            return await asyncio.to_thread(self.find, patience)

    def limit(self, patience: float) -> float:
        """How long to wait for a server to be connected and to say what it is."""
        return patience if self.route is None else min(patience, PRIMARY_S)

    def asks_again(self, failure: StoreUnavailable, found: Primary | None, until: float) -> bool:
        """Whether a failure may be a failover under way. Whoever has never reached Redis waits for it; others
        have their own ways to try again."""
        failover = found is not None or isinstance(failure, Undecided)
        return failover and not (self._met or self._given_up) and time.monotonic() + AGAIN_S < until

    def give_up(self) -> None:
        """Let another thread's opening fail now; for good."""
        self._given_up = True
        cut(self.under_way)

    def note(self, connection: object, server: Server) -> None:
        """With Sentinels, a connection is cut when they name another primary."""
        if self.route is not None and server.found is not None:
            self.route.note(connection, replace(server.found, run_id=server.run_id))

    def checked(self, answers: list[Any], found: Primary | None, *, primary: bool) -> Server:
        """The server, by its answers; SlicelockError when it cannot be used."""
        server = replace(Server.of(*answers), found=found)
        server.check(self.place)
        if primary:
            server.check_primary(self.place)
        if primary and not self._met:  # at the start only: a change must not stop what runs
            server.check_eviction(self.place)
        self._met = True
        return server


def opened(endpoint: Endpoint, patience: float, *, primary: bool = True) -> tuple[Link, Server]:
    """A new connection, and the server it leads to, within about `patience` seconds.

    SlicelockError says why not; a replica is refused if `primary`. Nothing stays open after a failure.
    """
    until = time.monotonic() + patience
    while True:
        found = None
        try:
            found = endpoint.find(max(until - time.monotonic(), 0.0))
            return _opened_there(endpoint, found, until, primary=primary)
        except StoreUnavailable as failure:
            if not endpoint.asks_again(failure, found, until):
                raise
        time.sleep(AGAIN_S)


def _opened_there(
    endpoint: Endpoint, found: Primary | None, until: float, *, primary: bool
) -> tuple[Link, Server]:
    link = endpoint.under_way = endpoint.dialer.link(found and found.address)
    endpoint.note(link, Server(found=found))
    limit = endpoint.limit(max(until - time.monotonic(), 0.01))
    link.socket_timeout = link.socket_connect_timeout = limit
    try:
        link.connect()
        link.send_packed_command([pack(words)[0] for words in GREETING])
        server = endpoint.checked([_answer(link) for _ in GREETING], found, primary=primary)
    except (RedisError, OSError, UnicodeError) as error:
        link.disconnect()
        raise explain(error, endpoint.place, sent=False) from None
    except BaseException:
        link.disconnect()
        raise
    finally:
        endpoint.under_way = None
    endpoint.note(link, server)
    return link, server


async def opened_async(endpoint: Endpoint, patience: float) -> tuple[AsyncLink, Server]:
    """As `opened`, for the running event loop; to a primary alone."""
    until = time.monotonic() + patience
    while True:
        found = None
        try:
            found = await endpoint.find_async(max(until - time.monotonic(), 0.0))
            return await _opened_async_there(endpoint, found, until)
        except StoreUnavailable as failure:
            if not endpoint.asks_again(failure, found, until):
                raise
        await asyncio.sleep(AGAIN_S)


async def _opened_async_there(
    endpoint: Endpoint, found: Primary | None, until: float
) -> tuple[AsyncLink, Server]:
    link = endpoint.dialer.async_link(found and found.address)
    endpoint.note(link, Server(found=found))
    try:
        async with asyncio.timeout(endpoint.limit(until - time.monotonic())):
            await link.connect()
            await link.send_packed_command([pack(words)[0] for words in GREETING])
            answers = [await _async_answer(link) for _ in GREETING]
            server = endpoint.checked(answers, found, primary=True)
    except (RedisError, OSError, UnicodeError) as error:
        await link.disconnect(nowait=True)
        raise explain(error, endpoint.place, sent=False) from None
    except BaseException:
        await link.disconnect(nowait=True)
        raise
    endpoint.note(link, server)
    return link, server


def _answer(link: Link) -> Any:
    """The next answer; None where the server hides it, or has no such command."""
    with contextlib.suppress(ResponseError):
        return link.read_response()
    return None


async def _async_answer(link: AsyncLink) -> Any:
    with contextlib.suppress(ResponseError):
        return await link.read_response()
    return None
