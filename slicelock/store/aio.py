"""Runs scripts and flows for an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from redis.exceptions import NoScriptError, RedisError, ResponseError

from slicelock.codec import Command, R
from slicelock.errors import StoreError, StoreUnavailable
from slicelock.flow import Call, Flow, Now, Step, Wait
from slicelock.keys import Keys
from slicelock.scripts import load
from slicelock.settings import StoreSettings
from slicelock.store.connect import AsyncLink, pack
from slicelock.store.epochs import Epochs
from slicelock.store.failures import CLOSED, explain
from slicelock.store.opening import Endpoint, opened_async
from slicelock.store.replicas import Replicas
from slicelock.store.server import Server

T = TypeVar("T")


class AsyncInbox(Protocol):
    """Where a waiting flow learns that a message for it has come."""

    async def wait(self, seconds: float) -> bool:
        """Whether a message came within `seconds`, or since the last call."""
        ...


class AsyncStore:
    """One connection to a pool's Redis for one event loop, opened at the first call and closed with the loop.

    As `Store`: nothing is repeated. A cancelled call closes the connection, since its reply may still come.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        name: str = "client",
        overlay: Path | None = None,
        epochs: Epochs | None = None,
    ) -> None:
        self._endpoint, self._epochs = Endpoint(settings, name), epochs or Epochs()
        self._replicas = Replicas(settings, sentinels=self._endpoint.route is not None)
        self._server = Server()
        self._timeout = settings.store_timeout
        self._meta = Keys(settings.pool).meta
        self._overlay = overlay
        self._link: AsyncLink | None = None
        self._closed = False
        self._lock = asyncio.Lock()
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._guard: AsyncGenerator[None, None] | None = None

    async def run(self, command: Command[R]) -> R:
        """Run one script and decode its answer."""
        async with self._lock:
            reply = command.decode(await self._call(command))
            self._epochs.heed(reply)
            if command.needs_replicas(reply):
                await self._await_replicas()
        return reply

    async def drive(self, flow: Flow[T], inbox: AsyncInbox | None = None) -> T:
        """Run a flow to its end. Whatever interrupts it is thrown into it; its clean-up call is shielded."""
        interrupted = False
        try:
            step = next(flow)
            while True:
                try:
                    work = self._take(step, inbox)
                    answer = await (self._shielded(work) if interrupted else work)
                except BaseException as failure:  # noqa: BLE001 - the flow decides
                    interrupted = interrupted or not isinstance(failure, Exception)
                    step = flow.throw(failure)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            flow.close()

    async def aclose(self) -> None:
        """Close the connection for good: later calls raise StoreError."""
        async with self._lock:
            self._closed = True
            await self._drop()
            guard, self._guard = self._guard, None
        if guard is not None:
            await guard.aclose()

    # ------------------------------------------------------------ steps

    async def _take(self, step: Step, inbox: AsyncInbox | None) -> Any:
        match step:
            case Call(command):
                return await self.run(command)
            case Now():
                return time.monotonic()
            case Wait(seconds) if inbox is not None:
                return await inbox.wait(seconds)
            case Wait(seconds):
                return await asyncio.sleep(max(seconds, 0.0))

    async def _shielded(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaned)
        return await asyncio.shield(task)

    def _cleaned(self, task: asyncio.Task[Any]) -> None:
        self._cleaning.discard(task)
        if not task.cancelled():
            task.exception()  # seen; whoever still waits gets it too

    # ------------------------------------------------------------ calls, under the lock

    async def _call(self, command: Command) -> Any:
        source = load(command.script, self._overlay)
        tail = ("1", self._meta, *command.argv())
        try:
            return await self._exchange(("EVALSHA", source.sha, *tail))
        except NoScriptError:
            return await self._exchange(("EVAL", source.text, *tail))

    async def _exchange(self, words: tuple[str, ...]) -> Any:
        link = self._link or await self._connect()
        try:
            async with asyncio.timeout(self._timeout):
                await link.send_packed_command(pack((*words, self._epochs.told_to(self._server))))
                return await link.read_response()
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            failure = explain(error, self._endpoint.place, sent=True)
            if not isinstance(error, ResponseError) or isinstance(failure, StoreUnavailable):
                await self._drop()
            raise failure from None
        except BaseException:
            await self._drop()  # an interrupted exchange leaves half a reply behind
            raise

    async def _await_replicas(self) -> None:
        """On the connection of the grant, and on no other."""
        needed, link = self._replicas.needed(self._server), self._link
        if not needed or link is None:
            return
        try:
            async with asyncio.timeout(self._timeout):
                await link.send_packed_command([self._replicas.question(needed)])
                await link.read_response()
                confirmed = await link.read_response()
        except (RedisError, OSError) as error:
            await self._drop()
            raise self._replicas.refused(explain(error, self._endpoint.place, sent=True)) from None
        except BaseException:
            await self._drop()
            raise
        self._replicas.check(confirmed, needed, self._endpoint.place)

    async def _connect(self) -> AsyncLink:
        if self._closed:
            raise StoreError(CLOSED)
        link, self._server = await opened_async(self._endpoint, self._timeout)
        self._link = link
        await self._close_with_loop()
        return link

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.disconnect(nowait=True)

    async def _close_with_loop(self) -> None:
        """A loop that ends closes its async generators: the one thing of ours that it tells in time."""
        if self._guard is None:
            self._guard = self._until_loop_ends()
            await anext(self._guard)

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._drop()
