"""The bytes of an open connection, without redis-py, whose way there takes as long as a small script.

redis-py connects (user, password, database, TLS) and disconnects; calls and replies in between go here.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from typing import Any, cast

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as RedisTimeout

from slicelock.store.connect import Link, cut, socket_of

SIZE = 65_536  # bytes that are read at a time
_NOTHING = object()


class RawLink:
    """A connection that redis-py has opened, for one thread at a time. `timeout`: seconds, 0 never waits.

    Whatever fails or interrupts a call leaves half of it behind: the connection is of no use any more.
    """

    def __init__(self, link: Link, timeout: float) -> None:
        self._link, self._socket = link, socket_of(link)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=cast(Any, link)._parser.parse_error,
            notEnoughData=_NOTHING,
        )
        self.limit(timeout)

    def limit(self, timeout: float) -> None:
        """Change the timeout. The kernel keeps it where it can, since Python would poll before each call."""
        if not timeout or isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(timeout)
            return
        self._socket.settimeout(None)
        limit = struct.pack("ll", *divmod(max(round(timeout * 1e6), 1), 1_000_000))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def fileno(self) -> int:
        """The descriptor, to wait on it together with other things."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._link.disconnect()

    def cut(self) -> None:
        """Let another thread's call fail now; it closes the connection."""
        cut(self._link)

    def send(self, call: bytes) -> None:
        """Send a whole call; OSError or RedisError when that is not possible in time."""
        try:
            self._socket.sendall(call)
        except BlockingIOError:
            raise RedisTimeout("Timeout writing to socket") from None

    def receive(self, patience: float | None = None) -> Any:
        """The next reply; RedisError when it is an error or does not come in time, OSError too.

        `patience`: seconds until it must begin to come, if not the whole timeout.
        """
        while (reply := self._next()) is _NOTHING:
            try:
                came = (patience is None or self._ready(patience)) and self._feed()
            except BlockingIOError:
                came = 0
            if not came:
                raise RedisTimeout("Timeout reading from socket")
        return reply

    def arrived(self) -> list[Any]:
        """The replies that are here already; for a timeout of 0. Raises as `receive`."""
        replies: list[Any] = []
        more = True
        while more:
            try:
                more = self._feed() == SIZE or isinstance(self._socket, ssl.SSLSocket)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            while (reply := self._next()) is not _NOTHING:
                replies.append(reply)
        return replies

    def _ready(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(seconds * 1000))

    def _feed(self) -> int:
        if not (data := self._socket.recv(SIZE)):
            raise RedisConnectionError("Connection closed by server.")
        self._reader.feed(data)
        return len(data)

    def _next(self) -> Any:
        reply = self._reader.gets()
        if not isinstance(reply, Exception):
            return reply
        try:
            raise reply
        finally:
            del reply  # else this frame, and with it every caller's, lives until Python collects garbage
