"""Holds a turn for a command: while it runs, or until a health URL answers.

One event loop: the turn, the command under guard, the signals, the health URL. Whatever ends first decides:
the command's end gives its code; a lost turn ends the command; a signal is the command's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from slicelock.cli.child import GuardedCommand, SignalWatch
from slicelock.cli.console import say
from slicelock.cli.failures import one_line
from slicelock.client import AsyncSlice, AsyncTurn
from slicelock.errors import ConfigurationError, LeaseLost, StoreError
from slicelock.identity import ProcessIdentity
from slicelock.settings import Settings
from slicelock.signals import ending
from slicelock.store import AsyncStore
from slicelock.wire import Register

PATIENCE_S = 1.0  # waiting for longer is said
HEALTH_S = (0.5, 2.0)  # between two questions to the health URL, and for each answer


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. `settings` have the job and the run, `env` is the command's environment."""

    command: Sequence[str]
    env: Mapping[str, str]
    slices: Sequence[str]
    settings: Settings
    phase: str = ""
    timeout: float | None = None
    until: str = ""
    hooks: Sequence[Mapping[str, Any]] = ()
    """What agents are told of the servers that the command is."""


class Hold:
    """One held command, from its waiting to its end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._child: GuardedCommand | None = None
        self._waiting: asyncio.Task[AsyncTurn] | None = None
        self._ended_by = 0

    async def run(self) -> int:
        """The exit code. NotGranted, LeaseLost and NotStarted as they come; then nothing is left behind."""
        watch = SignalWatch(asyncio.get_running_loop(), self._signalled)
        try:
            turn = await self._acquire()
            if turn is None:
                return 128 + self._ended_by
            try:
                return await self._with_turn(turn)
            finally:
                await self._give_back(turn)
        finally:
            watch.close()

    def _signalled(self, number: int, from_terminal: bool) -> None:
        """A signal came: it is the command's, or it ends the waiting."""
        if self._child is not None:
            if not from_terminal:
                self._child.send(number)
        elif number in (*ending(), signal.SIGQUIT):
            self._ended_by = number
            if self._waiting is not None:
                self._waiting.cancel()

    async def _acquire(self) -> AsyncTurn | None:
        """The turn; None if a signal ended the waiting."""
        plan = self.plan
        slice_ = AsyncSlice(*plan.slices, settings=plan.settings)
        self._waiting = asyncio.create_task(slice_.acquire(phase=plan.phase, timeout=plan.timeout))
        await asyncio.wait([self._waiting], timeout=PATIENCE_S)
        if not self._waiting.done():
            say(f"slicelock: waiting for {' and '.join(plan.slices)}")
        try:
            return await self._waiting
        except asyncio.CancelledError:
            if not self._ended_by:
                raise
            return None

    async def _with_turn(self, turn: AsyncTurn) -> int:
        if self._ended_by:
            return 128 + self._ended_by
        self._child = child = GuardedCommand.start(self.plan.command, self.plan.env)
        over = asyncio.Event()
        registration = asyncio.create_task(self._keep_registered(child.pid, over))
        try:
            return await self._mind(turn, child)
        finally:
            over.set()
            await registration
            child.close()

    async def _mind(self, turn: AsyncTurn, child: GuardedCommand) -> int:
        ended = asyncio.create_task(child.wait())
        lost = asyncio.create_task(turn.lost.wait())
        healthy = asyncio.create_task(answers(self.plan.until)) if self.plan.until else None
        first = [ended, lost, healthy] if healthy else [ended, lost]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if healthy and healthy.done() and (failure := healthy.exception()):
            say(f"slicelock: {self.plan.until} cannot be asked ({one_line(failure)}); nothing is given back")
            healthy = None
            await asyncio.wait([ended, lost], return_when=asyncio.FIRST_COMPLETED)
        if lost.done() and not ended.done():
            child.end()
            await ended
            raise turn.loss or LeaseLost()
        await cancelled(lost)
        if healthy and healthy.done() and not ended.done():
            await self._give_back(turn)
            say(f"slicelock: {self.plan.until} answers; {' and '.join(self.plan.slices)} given back")
        if healthy:
            await cancelled(healthy)
        return await ended

    async def _give_back(self, turn: AsyncTurn) -> None:
        if turn.over:
            return
        with contextlib.suppress(LeaseLost):
            await turn.yield_()

    async def _keep_registered(self, pid: int, over: asyncio.Event) -> None:
        """Agents know the command as a process of the run, by its own identity, until it is over."""
        try:
            process = str(ProcessIdentity.of(pid))
        except ProcessLookupError:
            return
        store = AsyncStore(self.plan.settings, name="run")
        while not over.is_set():
            await self._register(store, process, gone=False)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.plan.settings.renew):
                    await over.wait()
        await self._register(store, process, gone=True)
        await store.aclose()

    async def _register(self, store: AsyncStore, process: str, *, gone: bool) -> None:
        settings, slices = self.plan.settings, tuple(self.plan.slices)
        hooks = list(self.plan.hooks)
        call = Register(settings.run or "", settings.job_name(), process, os.getuid(), slices, hooks, gone)
        # The next one will do, or an agent sees the process end; also when rights or a password have changed.
        with contextlib.suppress(StoreError, ConfigurationError):
            await store.run(call)


async def answers(url: str) -> None:
    """Return when the URL answers a GET with success."""
    while True:
        if await asyncio.to_thread(_answers, url):
            return
        await asyncio.sleep(HEALTH_S[0])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=HEALTH_S[1]) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError, HTTPException):  # nobody there, or what is there speaks no HTTP
        return False


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
