"""Replies and messages handed to callbacks, straight from the event loop: an agent answers at once.

redis-py connects (user, password, database, TLS); from then on the connection's bytes come here. To wait
for each reply in a coroutine would cost more than the reply itself, and every hand-over would pay for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import hiredis
from redis.exceptions import InvalidResponse, NoScriptError, RedisError

from slicelock.codec import Command, R
from slicelock.errors import SlicelockError, StoreError, StoreTimeout, StoreUnavailable
from slicelock.keys import Keys
from slicelock.scripts import load
from slicelock.settings import StoreSettings
from slicelock.store.connect import AsyncLink, pack
from slicelock.store.epochs import Epochs
from slicelock.store.failures import explain
from slicelock.store.opening import Endpoint, opened_async
from slicelock.store.server import Server
from slicelock.store.subscribe import REOPEN_S, WATCHDOG_S

Take = Callable[[Any], None]


class _Line(asyncio.Protocol):
    """An open connection. `heard` gets each reply, errors included; `lost` is called once, at its end."""

    def __init__(self, link: AsyncLink, heard: Take, lost: Callable[[], None]) -> None:
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


class _Connected:
    """One connection at a time for one event loop. Several that open it at once share one attempt."""

    def __init__(self, settings: StoreSettings, name: str) -> None:
        self._endpoint, self._timeout = Endpoint(settings, name), settings.store_timeout
        self._line: _Line | None = None
        self._server = Server()  # that it leads to
        self._opening = asyncio.Lock()
        self._failure: SlicelockError | None = None
        self._failures = self._closings = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._line is not None

    @property
    def server(self) -> Server:
        """The server that it leads to, or led to last."""
        return self._server

    async def open(self) -> None:
        """Connect, if need be; SlicelockError when it cannot be done, or `close` comes in between."""
        failures = self._failures
        async with self._opening:
            if self._line is not None:
                return
            if self._failure and self._failures != failures:
                raise self._failure.with_traceback(None)  # of the attempt that was waited for
            try:
                await self._connect()
            except SlicelockError as failure:
                self._failure, self._failures = failure, self._failures + 1
                raise

    async def _connect(self) -> None:
        closings = self._closings
        link, server = await opened_async(self._endpoint, self._timeout)
        if closings != self._closings:
            await link.disconnect(nowait=True)
            raise StoreUnavailable(
                f"The connection to Redis at {self._endpoint.place} is not wanted any more."
            )
        self._line, self._server = _Line(link, self._heard, self._broken), server
        self._endpoint.note(self._line, server)

    def close(self) -> None:
        """Close the connection; `open` makes a new one."""
        self._closings += 1
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _heard(self, reply: Any) -> None:
        raise NotImplementedError

    def _broken(self) -> None:
        self._line = None


class DirectStore(_Connected):
    """One connection to a pool's Redis for one event loop. Nothing is repeated, as in `Store`.

    `call` sends at once and hands the reply, or a SlicelockError, to a callback, which must not raise. A call
    that is not answered in time closes the connection, since its reply may still come.
    """

    def __init__(self, settings: StoreSettings, *, name: str = "client", overlay: Path | None = None) -> None:
        super().__init__(settings, name)
        self._meta, self._overlay = Keys(settings.pool).meta, overlay
        self._epochs = Epochs()
        self._waiting: deque[tuple[Command[Any], Take]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def call(self, command: Command[R], take: Callable[[R | SlicelockError], None]) -> None:
        """Send a command; without a connection `take` gets StoreUnavailable at once."""
        if self._line is None:
            take(StoreUnavailable(f"Redis at {self._endpoint.place} is not connected."))
            return
        self._send(command, "EVALSHA", load(command.script, self._overlay).sha)
        self._waiting.append((command, take))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._late)

    async def run(self, command: Command[R]) -> R:
        """Run one script and wait for its answer; connects if need be."""
        await self.open()
        answer: asyncio.Future[R | SlicelockError] = asyncio.get_running_loop().create_future()

        def take(reply: R | SlicelockError) -> None:
            if not answer.done():
                answer.set_result(reply)

        self.call(command, take)
        reply = await answer
        if isinstance(reply, SlicelockError):
            raise reply
        return reply

    def close(self) -> None:
        """Close the connection; calls under way are undecided."""
        super().close()
        self._give_up()

    def _send(self, command: Command[Any], how: str, script: str) -> None:
        assert self._line is not None
        self._line.write((how, script, "1", self._meta, *command.argv(), self._epochs.told_to(self._server)))

    def _heard(self, reply: Any) -> None:
        if not self._waiting:
            self.close()  # an answer to nothing: the next ones would be taken for others'
            return
        command, take = self._waiting.popleft()
        if isinstance(reply, NoScriptError):
            # Later calls keep their places: they have been answered with the same error, each in its turn.
            self._send(command, "EVAL", load(command.script, self._overlay).text)
            self._waiting.append((command, take))
            return
        self._rearm()
        answer = self._read(command, reply)
        if isinstance(answer, StoreUnavailable):
            self.close()  # perhaps it is no primary any more; the next connection is to the one that is
        self._epochs.heed(answer)
        take(answer)

    def _read(self, command: Command[R], reply: Any) -> R | SlicelockError:
        if isinstance(reply, RedisError):
            return explain(reply, self._endpoint.place, sent=True)
        try:
            return command.decode(reply)
        except SlicelockError as failure:
            return failure
        except (ValueError, TypeError, LookupError) as failure:
            return StoreError(
                f"Redis at {self._endpoint.place} gave an answer that makes no sense: {failure}."
            )

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._late)

    def _late(self) -> None:
        self._timer = None
        self.close()

    def _broken(self) -> None:
        super()._broken()
        self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._rearm()
        for _, take in waiting:
            take(
                StoreTimeout(f"Redis at {self._endpoint.place} did not answer. The call may have been done.")
            )


class DirectSubscription(_Connected):
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
        beside: DirectStore | None = None,
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
        assert self._line is not None
        await self._subscribe(self._line)
        self._heed(b"")

    async def _subscribe(self, line: _Line) -> None:
        confirmed = self._confirmed = asyncio.get_running_loop().create_future()
        self._missing = len(self._channels)
        line.write(("SUBSCRIBE", *self._channels))
        try:
            async with asyncio.timeout(self._timeout):
                await confirmed
        except TimeoutError:
            self.close()
            raise StoreTimeout(f"Redis at {self._endpoint.place} did not confirm a subscription.") from None
        except BaseException:
            self.close()
            raise

    async def watch(self) -> None:
        """Keep it alive for ever: a connection that is lost, astray or has fallen silent is made anew."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(REOPEN_S if self._line is None else self._watchdog / 4)
            silence = loop.time() - self._last
            if self._line is None or silence > self._watchdog or self._is_astray():
                self.close()
                try:
                    await self.open()
                except SlicelockError:
                    continue  # whoever calls scripts says that Redis is away
            elif silence > self._watchdog / 2:
                self._line.write(("PING",))

    def close(self) -> None:
        """Close the connection; an `open` under way fails."""
        super().close()
        self._settle(StoreUnavailable(f"The subscription at {self._endpoint.place} was closed."))

    def _heard(self, reply: Any) -> None:
        self._last = asyncio.get_running_loop().time()
        if isinstance(reply, RedisError):
            self._settle(explain(reply, self._endpoint.place, sent=False))
        elif reply[0] == b"message":
            self._heed(b"" if self._is_astray() else reply[2])
        elif reply[0] == b"subscribe":
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
