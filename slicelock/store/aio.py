"""Runs scripts and flows for an event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from redis.exceptions import NoScriptError, RedisError

from slicelock.codec import R, ScriptCall
from slicelock.errors import SlicelockError, StoreError, StoreUnavailable
from slicelock.flow import Call, Flow, Now, Step, Wait
from slicelock.keys import Keys
from slicelock.scripts import load
from slicelock.settings import StoreSettings
from slicelock.store.aio_link import AsyncConnection
from slicelock.store.epochs import Epochs
from slicelock.store.failures import CLOSED, explain, undecided
from slicelock.store.replicas import Replicas

T = TypeVar("T")
Take = Callable[[Any], None]


class AsyncInbox(Protocol):
    """Where a waiting flow learns that a message for it has come."""

    async def wait(self, seconds: float) -> bool:
        """Whether a message came within `seconds`, or since the last call."""
        ...


class AsyncStore(AsyncConnection):
    """One connection to a pool's Redis for one event loop, opened at the first call and closed with the loop.

    As `Store`: nothing is repeated. `send` hands the reply, or a SlicelockError, to a callback, which must
    not raise; calls are answered in their order, and need not wait for each other. One that is not answered
    in time closes the connection, since its reply may still come.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        name: str = "client",
        overlay: Path | None = None,
        epochs: Epochs | None = None,
    ) -> None:
        super().__init__(settings, name)
        self._meta, self._overlay = Keys(settings.pool).meta, overlay
        self._epochs = epochs or Epochs()
        self._replicas = Replicas(settings, sentinels=self._endpoint.route is not None)
        self._waiting: deque[tuple[ScriptCall[Any] | None, Take]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._guard: AsyncGenerator[None, None] | None = None

    # ------------------------------------------------------------ calls

    async def open(self) -> None:
        if self._closed:
            raise StoreError(CLOSED)
        await super().open()

    def send(self, call: ScriptCall[R], take: Callable[[R | SlicelockError], None]) -> None:
        """Send a call; without a connection `take` gets StoreUnavailable at once."""
        if self._link is None:
            take(StoreUnavailable(f"Redis at {self._endpoint.place} is not connected."))
        else:
            self._ask_script(call, "EVALSHA", load(call.script, self._overlay).sha, take)

    async def run(self, call: ScriptCall[R]) -> R:
        """Run one script and wait for its answer; connects if need be."""
        await self.open()
        answer: asyncio.Future[R | SlicelockError] = asyncio.get_running_loop().create_future()

        def take(reply: R | SlicelockError) -> None:
            if not answer.done():  # who waits for it may have been cancelled
                answer.set_result(reply)

        self.send(call, take)
        reply = await answer
        if isinstance(reply, SlicelockError):
            raise reply
        return reply

    async def aclose(self) -> None:
        """Close the connection for good: calls under way are undecided, later ones raise StoreError."""
        self._closed = True
        self._drop()
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.aclose()

    # ------------------------------------------------------------ flows

    async def drive(self, flow: Flow[T], inbox: AsyncInbox | None = None) -> T:
        """Run a flow to its end. Whatever interrupts it is thrown into it; its clean-up call is shielded."""
        interrupted = False
        try:
            step = next(flow)
            while True:
                try:
                    work = self._do(step, inbox)
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

    async def _do(self, step: Step, inbox: AsyncInbox | None) -> Any:
        match step:
            case Call(call):
                return await self.run(call)
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

    # ------------------------------------------------------------ questions and answers

    def _ask_script(self, call: ScriptCall[Any], how: str, script: str, take: Take) -> None:
        words = (how, script, "1", self._meta, *call.argv(), self._epochs.told_to(self._server))
        self._ask(words, call, take)

    def _ask(self, words: tuple[str, ...], call: ScriptCall[Any] | None, take: Take) -> None:
        """`call`: the call of a script that it is, if it is one."""
        assert self._link is not None
        self._link.write(words)
        self._waiting.append((call, take))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._late)

    def _heard(self, reply: Any) -> None:
        if not self._waiting:
            self._drop()  # an answer to nothing: the next ones would be taken for others'
            return
        call, take = self._waiting.popleft()
        if call is not None and isinstance(reply, NoScriptError):
            # Later calls keep their places: they have been answered with the same error, each in its turn.
            self._ask_script(call, "EVAL", load(call.script, self._overlay).text, take)
            return
        self._rearm()
        answer = self._read(call, reply)
        if isinstance(answer, StoreUnavailable):
            self._drop()  # perhaps it is no primary any more; the next connection is to the one that is
        self._epochs.heed(answer)
        if call is None or isinstance(answer, SlicelockError) or not call.needs_replicas(answer):
            take(answer)
        else:
            self._await_replicas(answer, take)

    def _read(self, call: ScriptCall[Any] | None, reply: Any) -> Any:
        if isinstance(reply, RedisError):
            return explain(reply, self._endpoint.place, sent=True)
        try:
            return reply if call is None else call.decode(reply)
        except SlicelockError as failure:
            return failure

    def _await_replicas(self, grant: Any, take: Take) -> None:
        """On the connection of the grant, and on no other."""
        needed = self._replicas.needed(self._server)
        if not needed:
            take(grant)
            return
        questions, answers = self._replicas.questions(needed), list[Any]()

        def hear(answer: Any) -> None:
            answers.append(answer)
            if len(answers) == len(questions):
                take(self._replicas.objection(answers, needed, self._endpoint.place) or grant)

        for words in questions:
            self._ask(words, None, hear)

    # ------------------------------------------------------------ the connection

    async def _connect(self) -> None:
        await super()._connect()
        if self._guard is None:
            self._guard = self._until_loop_ends()
            await anext(self._guard)

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        """A loop that ends closes its async generators: the one thing of ours that it tells in time."""
        try:
            yield
        finally:
            self._drop()
            await asyncio.sleep(0)  # for the loop to close the socket

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._late)

    def _late(self) -> None:
        self._timer = None
        self._drop()

    def _drop(self) -> None:
        super()._drop()
        self._give_up()

    def _broken(self) -> None:
        super()._broken()
        self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._rearm()
        for _, take in waiting:
            take(undecided(self._endpoint.place))
