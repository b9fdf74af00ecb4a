"""The only place that builds Redis connections: explicit timeouts, RESP2, bytes, and no hidden retries.

redis-py repeats a timed-out call ten times unless told otherwise, scripts included. Here nothing is repeated:
a failure goes to the flow, which repeats with the same request id or gives up.

Sentinel belongs here too: an endpoint that asks its Sentinels for the primary before each `connect`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import hiredis
from redis import connection as sync_links
from redis.asyncio import connection as async_links
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from slicelock.errors import ConfigurationError
from slicelock.settings import StoreSettings

OLDEST_SERVER = (6, 2)  # older ones replicate scripts, not their effects, or lack what the scripts use
_pack = cast(Callable[[tuple[str, ...]], bytes], cast(Any, hiredis).pack_command)
_PLACE = ("host", "port", "db", "path", "username", "password")


class Link(Protocol):
    """What slicelock uses of redis-py's connection."""

    socket_timeout: float | None
    socket_connect_timeout: float | None

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def send_command(self, *args: str) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def read_response(self) -> Any: ...


class AsyncLink(Protocol):
    """What slicelock uses of redis-py's asyncio connection."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def send_command(self, *args: str) -> None: ...
    async def read_response(
        self, *, timeout: float | None = None, disconnect_on_error: bool = True
    ) -> Any: ...


class Endpoint:
    """Where a pool's Redis is. `place` names it without credentials."""

    def __init__(self, settings: StoreSettings, name: str) -> None:
        self._options = _options(settings.url())
        self._options |= {
            "socket_timeout": settings.store_timeout,
            "socket_connect_timeout": settings.store_timeout,
            "protocol": 2,
            "decode_responses": False,
            "health_check_interval": 0,
            "client_name": f"slicelock-{name}",
        }
        if db := self._options.pop("db", 0):
            self._options["db"] = str(db)  # see `pack`
        if "path" not in self._options:
            self._options["socket_keepalive"] = True
        self.tls = bool(self._options.pop("tls"))
        self.place = _place(self._options)

    def link(self) -> Link:
        """A connection that is not open yet."""
        return cast(Link, self._kind(sync_links)(**self._options, retry=Retry(NoBackoff(), 0)))

    def async_link(self) -> AsyncLink:
        """A connection for the running event loop that is not open yet. Its user sets time limits.

        redis-py's own limit for sending is `asyncio.wait_for`, which loses cancellations before Python 3.12.
        """
        options = {**self._options, "socket_timeout": None, "retry": AsyncRetry(NoBackoff(), 0)}
        return cast(AsyncLink, self._kind(async_links)(**options))

    def _kind(self, links: object) -> Callable[..., object]:
        tcp = "SSLConnection" if self.tls else "Connection"
        return getattr(links, "UnixDomainSocketConnection" if "path" in self._options else tcp)


def _options(url: str) -> dict[str, Any]:
    try:
        parsed = cast(Callable[[str], dict[str, Any]], cast(Any, sync_links).parse_url)(url)
    except ValueError as error:
        raise ConfigurationError(
            f"SLICELOCK_REDIS_URL is not a Redis URL: {error}.",
            advice="Use redis://host:port/db, rediss://host:port/db or unix:///path.",
        ) from None
    tls = parsed.pop("connection_class", None) is sync_links.SSLConnection
    if unknown := sorted(name for name in parsed if name not in _PLACE and not name.startswith("ssl_")):
        raise ConfigurationError(
            f"SLICELOCK_REDIS_URL has options that slicelock sets itself or lacks: {', '.join(unknown)}.",
            advice="Remove them from the URL.",
        )
    return {"tls": tls, **parsed}


def _place(options: Mapping[str, Any]) -> str:
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


def check_server(info: object, place: str) -> None:
    """Refuse a server that is too old for the scripts, by its answer to `INFO server`."""
    text = info.decode("utf-8", "replace") if isinstance(info, bytes) else ""
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    version = facts.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise ConfigurationError(
            f"Redis at {place} has version {version}, which is too old for slicelock.",
            advice=f"Use Redis {oldest} or newer, or Valkey.",
        )


def socket_of(link: Link) -> socket.socket:
    """The open connection's socket, to wait on it together with other things; redis-py has no other way."""
    return cast(socket.socket, cast(Any, link)._sock)


def pack(words: tuple[str, ...]) -> list[bytes]:
    """One call as bytes for `send_packed_command`. Text only: hiredis 3.5 crashes when a signal interrupts
    its conversion of a number."""
    return [_pack(words)]
