"""A TCP proxy before a Redis server: it tells calls apart, and loses or delays the one that it is told to.

    with Proxy(server.url) as proxy:
        client = connect(proxy.url)
        proxy.fault(Fault.LOSE_REPLY, script_call("acquire"))

One background thread; all methods may be called from any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from slicelock import scripts
from tests.support import resp

T = TypeVar("T")
CLOSE_ROUNDS = 10  # of 0.1 s, before what goes on is cancelled
Match = Callable[[list[bytes]], bool]


class Fault(StrEnum):
    """What can happen to one call."""

    LOSE_CALL = "the connection is cut before the server sees the call"
    LOSE_REPLY = "the call is carried out; the connection is cut instead of the reply"
    SWALLOW_REPLY = "the call is carried out; the reply never comes, and the connection stays"
    DELIVER_LATE = "the connection is cut; the server gets the call only after `release()`"


def any_call(words: list[bytes]) -> bool:
    """Every command, such as PING and HELLO too."""
    return bool(words)


def script_call(name: str = "", overlay: Path | None = None) -> Match:
    """Calls of the script `name` (any script when empty), by EVALSHA or EVAL."""
    wanted = scripts.load(name, overlay) if name else None

    def match(words: list[bytes]) -> bool:
        if not words or words[0].upper() not in (b"EVALSHA", b"EVAL"):
            return False
        return wanted is None or words[1] in (wanted.sha.encode(), wanted.text.encode())

    return match


@dataclass(slots=True)
class _Rule:
    fault: Fault
    match: Match
    skip: int
    times: int


@dataclass(eq=False, slots=True)
class _Link:
    """One client's connection and ours to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    pending: deque[Fault | None] = field(default_factory=deque)
    deaf: bool = False  # the client is gone and its call is delivered late
    subscribed: bool = False
    raw: bool = False  # a replica's: what follows PSYNC is no sequence of calls and replies

    def close(self) -> None:
        for end in (self.client, self.server):
            end.transport.abort()


class Proxy:
    """Passes everything on until told otherwise.

    `calls` counts the calls seen, by their first word; `hits` the faults done. `delay_s` holds back every
    message by so many seconds, each way. `drop_messages` swallows pub/sub messages, not a confirmation.
    """

    def __init__(self, upstream: str) -> None:
        self.delay_s = 0.0
        self.drop_messages = False
        self.calls: dict[str, int] = {}
        self.hits = 0
        self._upstream = urlsplit(upstream)
        self._rules: list[_Rule] = []
        self._links: set[_Link] = set()
        self._late: list[tuple[_Link, bytes]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = 0
        self._call(self._listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    def fault(self, fault: Fault, match: Match = any_call, *, skip: int = 0, times: int = 1) -> None:
        """After `skip` calls that match, do this to the next `times` of them."""
        self._rules.append(_Rule(fault, match, skip, times))

    def clear(self) -> None:
        """Forget all faults."""
        self._rules.clear()

    def release(self) -> None:
        """Deliver the calls that were held back; returns when the server has answered them."""
        self._call(self._release)

    def cut(self) -> None:
        """Close every connection now; new ones are welcome."""
        self._call(self._cut)

    def move(self, upstream: str) -> None:
        """Lead to another server; of the open connections only subscriptions stay where they are."""
        self._upstream = urlsplit(upstream)
        self._call(self._cut_callers)

    def refuse(self) -> None:
        """Close every connection and listen no longer, as a server that is down."""
        self._call(self._refuse)

    def accept(self) -> None:
        """End `refuse` and `stall`."""
        self._call(self._accept)

    def stall(self) -> None:
        """Pass nothing on, either way, but keep the connections and take new ones."""
        self._call(self._stall)

    # ------------------------------------------------------------ in the proxy's thread

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(10.0)

    async def _listen(self) -> None:
        self._flow = asyncio.Event()
        self._flow.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        await self._refuse()
        patience = CLOSE_ROUNDS
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut()  # also those that were accepted a moment ago: most tasks end by themselves then
            _, hanging = await asyncio.wait(others, timeout=0.1)
            patience -= 1
            for task in hanging if patience <= 0 else ():
                task.cancel()
        await asyncio.sleep(0)  # transports are closed in the loop's next round

    async def _cut(self) -> None:
        for link in list(self._links):
            link.close()

    async def _cut_callers(self) -> None:
        for link in [link for link in self._links if not link.subscribed]:
            link.close()

    async def _refuse(self) -> None:
        for listening in self._server.sockets:
            self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)  # a closed server loses what it has accepted and not begun to serve
        self._server.close()
        await self._cut()

    async def _accept(self) -> None:
        self._flow.set()
        if not self._server.is_serving():
            await self._listen()

    async def _stall(self) -> None:
        self._flow.clear()

    async def _release(self) -> None:
        late, self._late = self._late, []
        for link, call in late:
            link.pending.clear()
            link.server.write(call)
            async with asyncio.timeout(5.0):
                while not link.pending:  # the reader notes the reply there
                    await asyncio.sleep(0.001)
            link.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(self._upstream.path)
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await self._connect()
        except BaseException as failure:
            writer.transport.abort()
            if isinstance(failure, OSError):
                return
            raise
        link = _Link(writer, upstream_writer)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, link, self._on_call, lambda: not link.deaf))
                group.create_task(self._pump(upstream_reader, link, self._on_reply, lambda: True))
        finally:
            self._links.discard(link)
            link.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        link: _Link,
        handle: Callable[[_Link, bytes], None],
        ends_link: Callable[[], bool],
    ) -> None:
        data = bytearray()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65_536):
                data += chunk
                for message in self._messages(link, data):
                    if self.delay_s:
                        await asyncio.sleep(self.delay_s)
                    await self._flow.wait()
                    if not link.server.is_closing():
                        handle(link, message)
        if ends_link():
            link.close()

    def _messages(self, link: _Link, data: bytearray) -> Iterator[bytes]:
        """Cut what has come whole off the front of `data`."""
        if not link.raw:
            yield from resp.take(data)
        if link.raw and data:
            yield bytes(data)
            data.clear()

    def _on_call(self, link: _Link, message: bytes) -> None:
        if link.raw:
            link.server.write(message)
            return
        words = resp.words(message)
        if words[0].upper() == b"PSYNC":
            link.raw = True
        name = words[0].decode().upper()
        self.calls[name] = self.calls.get(name, 0) + 1
        fault = self._fault_for(words)
        if fault is Fault.LOSE_CALL:
            link.close()
        elif fault is Fault.DELIVER_LATE:
            link.deaf = True
            self._late.append((link, message))
            link.client.transport.abort()
        elif not link.deaf:
            if words[0].lower() in resp.CONFIRMATIONS:
                link.subscribed = True
            else:
                link.pending.append(fault)
            link.server.write(message)

    def _fault_for(self, words: list[bytes]) -> Fault | None:
        for rule in self._rules:
            if not rule.match(words) or rule.times == 0:
                continue
            if rule.skip:
                rule.skip -= 1
                continue
            rule.times -= 1
            self.hits += 1
            return rule.fault
        return None

    def _on_reply(self, link: _Link, message: bytes) -> None:
        if link.raw:
            link.client.write(message)
            return
        first = next(iter(resp.words(message)), b"")
        if link.deaf:
            link.pending.append(None)
        elif first in resp.OUT_OF_BAND and (link.subscribed or message[:1] == b">"):
            if not self.drop_messages:
                link.client.write(message)
        elif first in resp.CONFIRMATIONS and link.subscribed:
            link.client.write(message)
        else:
            fault = link.pending.popleft() if link.pending else None
            if fault is Fault.LOSE_REPLY:
                link.close()
            elif fault is not Fault.SWALLOW_REPLY:
                link.client.write(message)
