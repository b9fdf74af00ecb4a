"""The agent's side of the helper processes: each makes one call at a time, and is ended if it overruns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slicelock_agent.backends.cuda.answers import BROKEN, HUNG, Answer

START_S = 60.0
"""Until a helper has loaded the driver: seconds on a cold machine."""
IDLE_KEPT = 8
AT_ONCE = 16
"""Calls at the same time; the rest waits."""
END_S = 2.0


class Helper:
    """One helper process. It dies with this process, and with its first call that overruns."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # what it starts is ended with it; a ^C at the agent does not reach it
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._read = b""
        self._told: asyncio.Future[Answer] | None = None
        self.usable = True

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    async def ready(self) -> Answer:
        """Wait until it can make calls, or says why not."""
        return await self._answer(START_S)

    async def call(self, asked: Mapping[str, Any], deadline: float) -> Answer:
        """Make one call; an Answer in every case. After `deadline` seconds the helper is ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.end()
            return Answer(BROKEN, text="its helper process has ended")
        return await self._answer(deadline)

    async def _answer(self, deadline: float) -> Answer:
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        told = self._told = loop.create_future()
        loop.add_reader(self._process.stdout.fileno(), self._hear, told)
        try:
            async with asyncio.timeout(deadline):
                return await told
        except TimeoutError:
            return Answer(HUNG, text=f"after {deadline:.0f} s")
        finally:
            if not told.done() or told.cancelled():  # its answer may come later, to another question
                self.end()
            self._stop_hearing(loop)

    def _hear(self, told: asyncio.Future[Answer]) -> None:
        assert self._process.stdout is not None
        data = self._process.stdout.read()
        if data is None or told.done():
            return
        self._read += data
        if not data:
            self.end()
            told.set_result(Answer(BROKEN, text="its helper process has ended"))
        elif self._read.endswith(b"\n"):
            line, self._read = self._read, b""
            told.set_result(_read_answer(line))

    def _stop_hearing(self, loop: asyncio.AbstractEventLoop) -> None:
        """Before the pipe is closed: its number will be another's."""
        assert self._process.stdout is not None
        if self._told is not None:
            loop.remove_reader(self._process.stdout.fileno())
            if not self._told.done():
                self._told.set_result(Answer(BROKEN, text="its helper process was ended"))
        self._told = None

    def end(self) -> None:
        """Kill it and what it has started; does not wait: a process inside the driver may take its time."""
        self.usable = False
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def reaped(self, patience: float = 0.0) -> bool:
        """Whether it has ended, within `patience` seconds; its pipes are closed then."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        if self._told is not None:
            self._stop_hearing(self._told.get_loop())
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return True


def _read_answer(line: bytes) -> Answer:
    try:
        told = json.loads(line)
        return Answer(
            int(told["code"]), told.get("value"), told.get("text") or "", float(told.get("seconds") or 0)
        )
    except (ValueError, TypeError, KeyError):
        return Answer(BROKEN, text=f"its helper answered {line[:80]!r}")


class Helpers:
    """Helper processes, kept for the next call. `options` choose the driver: see helper.py."""

    def __init__(self, options: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        script = Path(__file__).with_name("helper.py")
        self._command = [sys.executable, "-P", str(script), "--parent", str(os.getpid()), *options]
        self._environment = dict(os.environ if environment is None else environment)
        self._environment.pop("CUDA_VISIBLE_DEVICES", None)  # the driver must see every GPU
        self._idle: list[Helper] = []
        self._busy: set[Helper] = set()
        self._ending: list[Helper] = []
        self._turnstile = asyncio.Semaphore(AT_ONCE)
        self.started = 0

    async def call(self, op: str, pid: int, start: int, deadline: float, timeout_ms: int = 0) -> Answer:
        """Make one call of the driver on a process; an Answer in every case."""
        asked = {"op": op, "pid": pid, "start": start, "timeout_ms": timeout_ms}
        async with self._turnstile:
            kept = self._kept()
            helper, fresh = kept or self._start(), kept is None
            self._busy.add(helper)
            try:
                return await self._made(helper, asked, deadline, fresh)
            finally:
                self._busy.discard(helper)
                self._put_back(helper)

    async def _made(self, helper: Helper, asked: Mapping[str, Any], deadline: float, fresh: bool) -> Answer:
        ready = await helper.ready() if fresh else Answer(0)
        if ready.code:
            helper.end()
            return Answer(BROKEN, text=ready.text or ready.words)
        return await helper.call(asked, deadline)

    def _kept(self) -> Helper | None:
        """One that waits for a call. Those that were killed meanwhile are not asked: they say nothing of the
        process.
        """
        while self._idle:
            helper = self._idle.pop()
            if helper.runs:
                return helper
            self._ending.append(helper)
        return None

    def _start(self) -> Helper:
        self._ending = [one for one in self._ending if not one.reaped()]
        self.started += 1
        return Helper(self._command, self._environment)

    def _put_back(self, helper: Helper) -> None:
        if helper.usable and len(self._idle) < IDLE_KEPT:
            self._idle.append(helper)
        else:
            helper.end()
            self._ending.append(helper)

    @property
    def pids(self) -> list[int]:
        """The processes that are there at present."""
        return [one.pid for one in (*self._idle, *self._busy)]

    def close(self) -> None:
        """End all of them."""
        for helper in (*self._idle, *self._busy):
            helper.end()
            self._ending.append(helper)
        self._idle.clear()
        self._busy.clear()
        self._ending = [one for one in self._ending if not one.reaped(END_S)]
