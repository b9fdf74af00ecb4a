"""The only place that builds Redis connections: explicit timeouts, RESP2, bytes, and no hidden retries.

redis-py repeats a timed-out call ten times unless told otherwise, scripts included. Here nothing is repeated:
a failure goes to the flow, which repeats with the same request id or gives up.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import hiredis
from redis import connection as sync_links
from redis.asyncio import connection as async_links
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from slicelock.store.address import Address

_pack = cast(Callable[[tuple[str, ...]], bytes], cast(Any, hiredis).pack_command)
# Else redis-py tells its name and version on each connection: two calls, for which a user needs rights.
_UNNAMED: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(sync_links.AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)


class Link(Protocol):
    """What slicelock uses of redis-py's connection."""

    socket_timeout: float | None
    socket_connect_timeout: float | None

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def send_command(self, *args: str) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def read_response(self, *, push_request: bool = False) -> Any: ...


class AsyncLink(Protocol):
    """What slicelock uses of redis-py's asyncio connection."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def send_command(self, *args: str) -> None: ...
    async def read_response(
        self, *, timeout: float | None = None, disconnect_on_error: bool = True
    ) -> Any: ...


class Dialer:
    """Builds connections of one kind; none of them is open yet."""

    def __init__(
        self, options: Mapping[str, Any], *, tls: bool, name: str, timeout: float, protocol: int = 2
    ) -> None:
        self.tls, self.name = tls, name
        self._options = {
            **options,
            "socket_timeout": timeout,
            "socket_connect_timeout": timeout,
            "protocol": protocol,
            "decode_responses": False,
            "health_check_interval": 0,
            "client_name": f"slicelock-{name}",
            **_UNNAMED,
        }
        if db := self._options.pop("db", 0):
            self._options["db"] = str(db)  # see `pack`
        if "path" not in self._options:
            self._options["socket_keepalive"] = True

    def link(self, address: Address | None = None) -> Link:
        """A connection to `address`, by default to the one in the options."""
        options = {**self._options, **_at(address), "retry": Retry(NoBackoff(), 0)}
        return cast(Link, self._kind(sync_links)(**options))

    def async_link(self, address: Address | None = None) -> AsyncLink:
        """A connection for the running event loop. Its user sets time limits.

        redis-py's own limit for sending is `asyncio.wait_for`, which loses cancellations before Python 3.12.
        """
        retry = AsyncRetry(NoBackoff(), 0)
        options = {**self._options, **_at(address), "socket_timeout": None, "retry": retry}
        return cast(AsyncLink, self._kind(async_links)(**options))

    def _kind(self, links: object) -> Callable[..., object]:
        tcp = "SSLConnection" if self.tls else "Connection"
        return getattr(links, "UnixDomainSocketConnection" if "path" in self._options else tcp)


def _at(address: Address | None) -> dict[str, Any]:
    return {} if address is None else {"host": address[0], "port": address[1]}


def ask(link: Link, *words: str) -> Any:
    """Send one command and read its answer; redis-py's errors as they come."""
    link.send_command(*words)
    return link.read_response()


def socket_of(link: Link) -> socket.socket:
    """The open connection's socket, to wait on it together with other things; redis-py has no other way."""
    return cast(socket.socket, cast(Any, link)._sock)


def cut(connection: object) -> bool:
    """End a connection of redis-py under its user's hands, whichever kind it is: both sides see it closed.
    False when it is not open. Safe from any thread."""
    inside = cast(Any, connection)
    writer = getattr(inside, "_writer", None)
    found = writer.transport.get_extra_info("socket") if writer else getattr(inside, "_sock", None)
    if found is None:
        return False
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(found.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
        return True
    return False


def pack(words: tuple[str, ...]) -> list[bytes]:
    """One call as bytes for `send_packed_command`. Text only: hiredis 3.5 crashes when a signal interrupts
    its conversion of a number."""
    return [_pack(words)]
