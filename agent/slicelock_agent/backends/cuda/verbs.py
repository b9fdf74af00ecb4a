"""The driver's calls on all processes of a run together: all locked or none, all results by process.

Nothing here decides what comes next. What a call achieved is taken from its answer, or, where that leaves it
open, from the state that the driver tells afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slicelock.errors import BackendUnavailable
from slicelock_agent.backends.cuda.answers import (
    BROKEN,
    GONE,
    HUNG,
    INVALID,
    NOT_CUDA,
    NOT_READY,
    OK,
    STOPPED,
    WRONG_STATE,
    Answer,
    State,
    state_of,
)
from slicelock_agent.backends.cuda.discovery import Process, stopped


class Calls(Protocol):
    """Makes the driver's calls: `Helpers`."""

    async def call(self, op: str, pid: int, start: int, deadline: float, timeout_ms: int = 0) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long things may take, in seconds."""

    look: float = 10.0
    """One question to the driver."""
    lock: float = 5.0
    """Until work on the GPU has ended; the driver gives up then and leaves the process running."""
    grace: float = 10.0
    """Beyond that, until its helper is ended."""
    unlock: float = 30.0
    first_pause: float = 1.0
    """After a lock that took too long; doubled each time."""
    second_look: float = 0.2
    """Between two observations that must agree."""
    settle: float = 0.2
    """Between two equal readings of a GPU's memory."""
    release: float = 10.0
    """Until memory that was let go of is free."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock; clock changes do not move it."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, never less than nothing."""
        return max(0.0, self.at - time.monotonic())


Failures = dict[Process, str]
"""Why something failed, by process."""


class Verbs:
    """Calls for many processes at once. Each returns why it failed, by process; empty when nothing did."""

    def __init__(self, calls: Calls, patience: Patience) -> None:
        self._calls, self.patience = calls, patience

    async def states(self, processes: Iterable[Process]) -> dict[Process, State]:
        """What the driver says of each. UNKNOWN is asked about twice: a driver under way answers later."""
        found = await self._states(processes)
        unclear = [one for one, state in found.items() if state is State.UNKNOWN]
        if unclear:
            await asyncio.sleep(self.patience.second_look)
            found |= await self._states(unclear)
        return found

    async def observed(self, processes: Iterable[Process], deadline: float) -> dict[Process, State]:
        """As `states`, but asked for `deadline` seconds: while a save is under way, the driver answers only
        when it has ended (measured).

        BackendUnavailable when the driver cannot be called at all, so that nobody takes that for something
        wrong with the processes.
        """
        found = await self.states(processes)
        unclear = [one for one, state in found.items() if state is State.UNKNOWN]
        answers = await self._all("state", unclear, deadline)
        for answer in answers.values():
            if answer.code == BROKEN:
                raise BackendUnavailable(f"What was begun cannot be looked at: {answer.words}.")
        return found | {one: state_of(answer) for one, answer in answers.items()}

    async def users(self, processes: Sequence[Process]) -> tuple[list[Process], Failures]:
        """Those that use CUDA, and those of which that cannot be told."""
        answers = await self._all("thread", processes, self.patience.look)
        using = [one for one, answer in answers.items() if answer.code == OK]
        unclear = {
            one: answer.words
            for one, answer in answers.items()
            if answer.code not in (OK, NOT_CUDA, GONE, INVALID)
        }
        return using, unclear

    async def lock(self, processes: Sequence[Process], deadline: Deadline) -> Failures:
        """Have all of them locked, or none: after a failure those that are locked go on.

        Work that does not end in time is waited for again, after pauses of 1, 2, 4 … s.
        """
        pause = self.patience.first_pause
        while True:
            locked, failed = await self._lock_once(processes, deadline)
            if not failed:
                return {}
            stuck = await self.unlock(locked)  # before the others are asked: they may answer only then
            stuck |= await self.unlock(await self._locked(failed))
            late = not stuck and all(answer.code == NOT_READY for answer in failed.values())
            if not late or deadline.left <= pause:
                return {one: answer.words for one, answer in failed.items()} | stuck
            await asyncio.sleep(pause)
            pause *= 2

    async def save(self, processes: Sequence[Process], deadline: Deadline) -> dict[Process, Answer]:
        """Save each; the answers of those that failed. Ended ones are no failure: nothing of them is left."""
        return await self._reach("save", processes, deadline, (State.SAVED, State.GONE))

    async def restore(self, processes: Sequence[Process], deadline: Deadline) -> dict[Process, Answer]:
        """Restore each; the answers of those that failed. Whoever calls has made sure that there is room."""
        return await self._reach("restore", processes, deadline, (State.LOCKED, State.RUNNING, State.GONE))

    async def unlock(self, processes: Iterable[Process]) -> Failures:
        """Let each go on."""
        deadline = Deadline.after(self.patience.unlock)
        good = (State.RUNNING, State.GONE, State.NOT_CUDA)
        failed = await self._reach("unlock", processes, deadline, good)
        return {one: answer.words for one, answer in failed.items()}

    # ------------------------------------------------------------ one call each

    async def _lock_once(
        self, processes: Sequence[Process], deadline: Deadline
    ) -> tuple[list[Process], dict[Process, Answer]]:
        """The processes that are locked now, and the answers of those that could not be."""
        if standing := {one: Answer(STOPPED, text=why) for one in processes if (why := stopped(one.pid))}:
            return [], standing
        patience = min(self.patience.lock, max(0.1, deadline.left))
        answers = await self._all("lock", processes, patience + self.patience.grace, int(patience * 1000))
        failed = {one: answer for one, answer in answers.items() if answer.code not in (OK, NOT_CUDA, GONE)}
        before = await self._locked(one for one, answer in failed.items() if answer.code == WRONG_STATE)
        locked = [*(one for one, answer in answers.items() if answer.code == OK), *before]
        return locked, {one: answer for one, answer in failed.items() if one not in before}

    async def _locked(self, processes: Iterable[Process]) -> list[Process]:
        return [one for one, state in (await self.states(processes)).items() if state is State.LOCKED]

    async def _reach(
        self, op: str, processes: Iterable[Process], deadline: Deadline, good: tuple[State, ...]
    ) -> dict[Process, Answer]:
        """Make a call on each. One that answers anything but OK has failed unless it is in a good state."""
        answers = await self._all(op, list(processes), max(0.1, deadline.left))
        failed = {one: answer for one, answer in answers.items() if answer.code != OK}
        states = await self.states(failed)
        late = Deadline.after(self.patience.grace)
        while late.left and any(a.code == HUNG and states[one] not in good for one, a in failed.items()):
            await asyncio.sleep(self.patience.second_look)  # what hung may come to its end all the same
            states = await self.states(failed)
        return {one: answer for one, answer in failed.items() if states[one] not in good}

    async def _states(self, processes: Iterable[Process]) -> dict[Process, State]:
        answers = await self._all("state", list(processes), self.patience.look)
        return {one: state_of(answer) for one, answer in answers.items()}

    async def _all(
        self, op: str, processes: Sequence[Process], deadline: float, timeout_ms: int = 0
    ) -> Mapping[Process, Answer]:
        answers = await asyncio.gather(*(self._call(op, one, deadline, timeout_ms) for one in processes))
        return dict(zip(processes, answers, strict=True))

    async def _call(self, op: str, one: Process, deadline: float, timeout_ms: int) -> Answer:
        """Make one call. A process that is stopped is asked nothing but whether it uses CUDA, which the
        driver tells all the same; with any other answer it waits until the process goes on (measured).
        """
        if op != "thread" and (why := stopped(one.pid)):
            told = await self._calls.call("thread", one.pid, one.start, self.patience.look)
            return told if told.code in (NOT_CUDA, GONE) else Answer(STOPPED, text=why)
        return await self._calls.call(op, one.pid, one.start, deadline, timeout_ms)
