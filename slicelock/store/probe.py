"""Asks a server about itself and tries what slicelock needs of it, for `slicelock doctor`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store.connect import Link, ask
from slicelock.store.failures import explain
from slicelock.store.opening import Endpoint, opened
from slicelock.store.rights import parts
from slicelock.store.server import facts_in

# What scripts, clients and agents call; each line leaves nothing behind. K is a key, C a channel of the pool.
TRIALS: tuple[tuple[str, ...], ...] = (
    ("SET", "K", "value", "PX", "10000"),
    ("SET", "K", "value", "KEEPTTL"),
    ("GET", "K"),
    ("DEL", "K"),
    ("ZADD", "K", "1", "member"),
    ("ZRANGE", "K", "0", "-1"),
    ("ZREM", "K", "member"),
    ("SADD", "K", "member"),
    ("SMEMBERS", "K"),
    ("SREM", "K", "member"),
    ("XADD", "K", "*", "field", "value"),
    ("DEL", "K"),
    ("PUBLISH", "C", "look"),
    ("SUBSCRIBE", "C"),
)


CONFIG = (
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "client-output-buffer-limit",
    "appendfsync",
    "maxclients",
    "timeout",
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself, or nothing. `refused`: commands that it did not carry out."""

    place: str
    kind: str
    version: str
    role: str
    eviction: str
    maxmemory: int
    persistence: str
    round_trip_ms: float
    clock_ahead_s: float
    refused: Mapping[str, str]
    info: Mapping[str, str] = field(default_factory=dict[str, str])
    """What `INFO` told."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parts of its configuration; empty where this user may not ask."""
    user: str = ""
    parts: Mapping[str, list[str]] | None = None
    """By part that a user plays, the commands that this one lacks for it; None: the server cannot tell."""


def probe(settings: StoreSettings) -> ServerFacts:
    """Look at the server. StoreUnavailable: it is not reached; ConfigurationError: it refuses the user."""
    endpoint = Endpoint(settings, "doctor")
    link, _ = opened(endpoint, settings.store_timeout, primary=False)
    try:
        return _facts(link, endpoint.place, Keys(settings.pool))
    except (RedisError, OSError) as error:
        raise explain(error, endpoint.place, sent=False) from None
    finally:
        link.disconnect()


def _facts(link: Link, place: str, keys: Keys) -> ServerFacts:
    info = _info(link)
    begun = time.monotonic()
    now = _ask(link, "TIME")
    round_trip = time.monotonic() - begun
    server_s = int(now[0]) + int(now[1]) / 1e6 if now else time.time()
    return ServerFacts(
        place=place,
        kind=info.get("server_name", "redis").capitalize(),
        version=info.get("valkey_version") or info.get("redis_version", ""),
        role=info.get("role", ""),
        eviction=info.get("maxmemory_policy", ""),
        maxmemory=int(info.get("maxmemory", "0")),
        persistence=_persistence(link, info),
        round_trip_ms=round_trip * 1000,
        clock_ahead_s=server_s - (time.time() - round_trip / 2),
        info=info,
        config=_config(link),
        user=cast(bytes, _ask(link, "ACL", "WHOAMI") or b"").decode(),
        parts=parts(partial(_ask, link), keys),
        refused=_refused(link, keys),  # last: the connection subscribes
    )


def _config(link: Link) -> dict[str, str]:
    told: dict[str, str] = {}
    for name in CONFIG:
        pair = cast("list[bytes]", _ask(link, "CONFIG", "GET", name) or [])
        told |= dict([[one.decode("utf-8", "replace") for one in pair[:2]]]) if len(pair) >= 2 else {}
    return told


def _info(link: Link) -> dict[str, str]:
    facts: dict[str, str] = {}
    for section in ("server", "clients", "memory", "persistence", "stats", "replication"):
        facts |= facts_in(_ask(link, "INFO", section))
    return facts


def _ask(link: Link, *words: str) -> Any:
    """The answer to one command; None where the server does not let this user ask."""
    try:
        return ask(link, *words)
    except ResponseError:
        return None


def _persistence(link: Link, info: Mapping[str, str]) -> str:
    """How the server keeps its data: `append-only file`, `snapshots`, both, or empty for neither."""
    saves = _ask(link, "CONFIG", "GET", "save")
    ways = {"append-only file": info.get("aof_enabled") == "1", "snapshots": bool(saves and saves[1])}
    return " and ".join(way for way, on in ways.items() if on)


def _refused(link: Link, keys: Keys) -> dict[str, str]:
    place = {"K": keys.run("doctor"), "C": keys.node_channel("doctor")}
    refused: dict[str, str] = {}
    for words in TRIALS:
        try:
            ask(link, *(place.get(word, word) for word in words))
        except ResponseError as error:
            refused[words[0]] = str(error)
    return refused


def may_write(settings: StoreSettings) -> bool:
    """Whether this user may change what is stored, found out by removing what is not there.

    StoreError: that is not known now; ConfigurationError: it refuses the user.
    """
    endpoint = Endpoint(settings, "rights")
    link, _ = opened(endpoint, settings.store_timeout)
    try:
        ask(link, "DEL", Keys(settings.pool).run("-"))  # no run has this name
    except NoPermissionError:
        return False
    except (RedisError, OSError) as error:
        raise explain(error, endpoint.place, sent=False) from None
    finally:
        link.disconnect()
    return True
