"""What all kinds of model servers have in common: a record of what is to be undone, and in which order.

A step that undoes is written down before what it undoes is sent. So whatever happens to the server, to the
answer or to whoever asked, nothing is done twice, and nothing that was done is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from slicelock.servers.plan import Plan

log = logging.getLogger("slicelock")

LOAD = "load"
"""The step that fills dropped weights again."""
POLL_S = 0.2


@dataclass(slots=True)
class SleepRecord:
    """What is to be undone on a server, in this order; and which start of the server it was done to.

    `under_way`: a question that has been sent and was not answered. `doubtful`: perhaps it has not been
    sent, since whoever was about to has died.
    """

    steps: tuple[str, ...] = ()
    life: str = ""
    under_way: str = ""
    doubtful: bool = False

    def facts(self) -> dict[str, Any]:
        return {"steps": list(self.steps), "life": self.life, "under_way": self.under_way}

    @classmethod
    def of(cls, raw: Any) -> SleepRecord:
        """Read what `facts` wrote; KeyError or TypeError for anything else."""
        under_way = str(raw["under_way"])
        return cls(tuple(str(step) for step in raw["steps"]), str(raw["life"]), under_way, bool(under_way))


def keep_in_mind() -> None:
    """For a record that need not outlive this process."""


class ModelServer(ABC):
    """One server. `note` is called whenever the record has changed, before what it is about is sent."""

    def __init__(
        self, plan: Plan, record: SleepRecord | None = None, note: Callable[[], None] = keep_in_mind
    ) -> None:
        self.plan, self.record, self._note = plan, record or SleepRecord(), note

    @property
    def name(self) -> str:
        """The server for people."""
        return str(self.plan.address)

    @property
    def fills_itself(self) -> bool:
        """Whether the LOAD step is carried out here, and not by whoever owns the server."""
        return False

    @property
    def awaits_load(self) -> bool:
        """Whether nothing goes on before its owner has filled its weights."""
        return self.record.steps[:1] == (LOAD,) and not self.fills_itself

    @abstractmethod
    async def offload(self) -> None:
        """Have it asleep, unless it was found so; ServerError says why not.

        What has been begun is in the record, whatever happens. Nothing limits how long it takes.
        """

    async def wake(self) -> None:
        """Undo what the record says, and nothing else; ServerError says why not. Stops where it awaits its
        owner's load, and goes on from there after `loaded`.
        """
        if self.record.steps and await self._is_over():
            log.info("%s has been started anew or woken by its owner since it was put to sleep", self.name)
            self._forget()
        await self._find_out()
        while self.record.steps and not self.awaits_load:
            await self._undo(*self.record.steps[0].split())
            self._set(*self.record.steps[1:])

    def loaded(self) -> None:
        """Its owner has filled its weights."""
        self._set(*self.record.steps[1:])

    @abstractmethod
    async def _undo(self, verb: str, *tags: str) -> None:
        """Carry out one step of the record."""

    @abstractmethod
    async def _life(self) -> str:
        """What tells this start of the server from others; empty when nothing does."""

    async def _find_out(self) -> None:
        """Decide what became of a question that was not answered."""
        return

    async def _is_over(self) -> bool:
        """Whether there is nothing left to be undone, since the server was started anew."""
        life = await self._life()
        return bool(life and self.record.life) and life != self.record.life

    def _forget(self) -> None:
        """Nothing is to be undone."""
        self.record.under_way, self.record.doubtful = "", False
        self._set()

    def _set(self, *steps: str) -> None:
        self.record.steps = steps
        self._note()

    async def _drained(self, is_idle: Callable[[], Awaitable[bool]], drain: float) -> bool:
        """Ask until `is_idle` says yes, for `drain` seconds at most; whether it did."""
        end = asyncio.get_running_loop().time() + drain
        while not await is_idle():
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(POLL_S)
        return True
