"""The floor of a hand-over: the same chain of messages done bare, with nothing decided and nothing checked.

The giver runs a script that publishes; a third process gets the message and runs a script that publishes; the
taker gets that and runs a confirming script.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, cast

import redis

NODE_CHANNEL = "bench:bare:node"
SOCKET_TIMEOUT_S = 30.0


@cache
def script(name: str) -> tuple[str, str]:
    """A script of `bench/lua`: its text and its hash."""
    text = (files("slicelock.bench") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def client(url: str) -> Any:
    """A plain client of redis-py."""
    return cast(Any, redis.Redis).from_url(url, socket_timeout=SOCKET_TIMEOUT_S, protocol=2)


class BareSide:
    """Gives by a message to the node, and takes when the node's message has come."""

    def __init__(self, url: str, name: str, other: str) -> None:
        self._redis = client(url)
        self._other = _channel(other)
        for text, _ in (script("pass_on"), script("noop")):
            self._redis.script_load(text)
        self._inbox = _subscribed(self._redis, _channel(name))

    def first(self) -> None:
        """Nothing is to be had: the message is the turn."""

    def acquire(self) -> None:
        """Wait for the message, and confirm."""
        _message(self._inbox)
        self._redis.evalsha(script("noop")[1], 0)

    def give(self) -> None:
        """Tell the node."""
        self._redis.evalsha(script("pass_on")[1], 1, NODE_CHANNEL, self._other)

    def close(self) -> None:
        """Nothing is left behind."""
        self._inbox.close()
        self._redis.close()


def be_node(url: str) -> None:
    """Pass every message on to the channel that it names, for ever."""
    server = client(url)
    server.script_load(script("pass_on")[0])
    inbox = _subscribed(server, NODE_CHANNEL)
    print("ready", flush=True)
    while True:
        server.evalsha(script("pass_on")[1], 1, _message(inbox), "go")


def _channel(name: str) -> str:
    return f"bench:bare:{name}"


def _subscribed(server: Any, channel: str) -> Any:
    inbox = server.pubsub()
    inbox.subscribe(channel)
    inbox.get_message(timeout=SOCKET_TIMEOUT_S)
    return inbox


def _message(inbox: Any) -> bytes:
    while True:
        message = inbox.get_message(timeout=None)
        if message and message["type"] == "message":
            return message["data"]
