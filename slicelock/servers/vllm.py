"""vLLM's sleep mode: the order of questions, whatever way they go (HTTP, or the methods of an engine).

Seen in vLLM 0.9 to 0.33: `sleep` without `mode` (before 0.17) cares for no running request, `mode` defaults
to `abort`, a second `sleep` has crashed engines, a pause counts as sleep, `wake_up` of a tag that is awake
does nothing, and weights that were woken twice end the engine. So the state is asked before and after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from slicelock.servers.http import NoAnswer, ServerError
from slicelock.servers.plan import Plan, SleepMode
from slicelock.servers.server import LOAD, POLL_S, ModelServer, SleepRecord, keep_in_mind

log = logging.getLogger("slicelock")

KNOWS_MODES = (0, 17)
SETTLING_S = 2.0
"""How long the state may lag behind a successful answer."""


_NO_MODES = {
    SleepMode.WAIT: "which does not wait by itself, and it does not tell its running requests: start it "
    "without --disable-log-stats, or use 'abort' if there can be none",
    SleepMode.KEEP: "which has no mode 'keep'; use 'wait'",
    SleepMode.ABORT: "which aborts no requests and would end by them; use 'wait'",
}
"""What sleep without modes lacks, and the way out."""


class VllmControl(Protocol):
    """What is asked of vLLM. NoAnswer and Refused as over HTTP."""

    name: str

    async def is_sleeping(self) -> bool: ...

    async def sleep(self, level: int, mode: SleepMode) -> None: ...

    async def wake_up(self, tags: Sequence[str]) -> None:
        """Wake these tags; none: everything."""
        ...

    async def load(self, method: str) -> None:
        """Have the workers fill the weights by a method of theirs."""
        ...

    async def running(self) -> int | None:
        """Requests that have not ended; None when it does not tell."""
        ...

    async def version(self) -> tuple[int, ...]:
        """Its version; empty when it does not tell."""
        ...

    async def life(self) -> str:
        """What tells this start from others; empty when nothing does."""
        ...


class Vllm(ModelServer):
    """A vLLM server or engine."""

    def __init__(
        self,
        control: VllmControl,
        plan: Plan,
        record: SleepRecord | None = None,
        note: Callable[[], None] = keep_in_mind,
    ) -> None:
        super().__init__(plan, record, note)
        self._control = control

    @property
    def name(self) -> str:
        return self._control.name

    @property
    def fills_itself(self) -> bool:
        return bool(self.plan.reload)

    async def offload(self) -> None:
        if not await self._control.is_sleeping():
            await self._fall_asleep()
        elif self.record.steps and not await self._is_another_start():
            log.info("%s sleeps since an earlier attempt", self.name)
        else:
            log.info("%s sleeps or is paused already; it is left so", self.name)
            self._forget()

    async def _fall_asleep(self) -> None:
        mode = await self._prepared()
        self.record.life = await self._control.life()
        self._set(*(["wake"] if self.plan.level == 1 else ["wake weights", LOAD, "wake kv_cache"]))
        await self._until(lambda: self._control.sleep(self.plan.level, mode), asleep=True)

    async def _prepared(self) -> SleepMode:
        """The mode to ask for; ServerError when there are requests that the sleep would harm.

        After waiting here `keep` is asked for: should a request come at the last moment, it stands still. A
        `wait` that is given up would have the engine fall asleep later, whoever has its turn then.
        """
        plan, known = self.plan, await self._control.running()
        if plan.mode is SleepMode.WAIT and known is not None:
            if not await self._drained(self._is_idle, plan.drain):
                raise ServerError(f"it still answers requests after {plan.drain:g} s; it is left awake")
            return SleepMode.KEEP
        harmed = plan.mode is not SleepMode.ABORT or known
        if harmed and await self._control.version() < KNOWS_MODES:
            raise ServerError(f"it is older than vLLM 0.17, {_NO_MODES[plan.mode]}")
        return plan.mode

    async def _is_idle(self) -> bool:
        return not await self._control.running()

    async def _undo(self, verb: str, *tags: str) -> None:
        if verb == LOAD:
            await self._control.load(self.plan.reload)
        else:
            remains = any(step.startswith("wake") for step in self.record.steps[1:])
            await self._until(lambda: self._control.wake_up(tags), asleep=remains)

    async def _is_over(self) -> bool:
        return await self._is_another_start() or not await self._control.is_sleeping()

    async def _is_another_start(self) -> bool:
        return await super()._is_over()

    async def _life(self) -> str:
        return await self._control.life()

    async def _until(self, ask: Callable[[], Awaitable[None]], *, asleep: bool) -> None:
        """Ask, and see that it is so. An answer that did not come is waited for, by looking; never asked for
        a second time.
        """
        loop, patience = asyncio.get_running_loop(), SETTLING_S
        try:
            await ask()
        except NoAnswer as silence:
            if not silence.arrived:
                raise
            log.warning("%s: %s; looking whether it was carried out", self.name, silence)
            patience = float("inf")
        end = loop.time() + patience
        while await self._sleeps_now() is not asleep:
            if loop.time() > end:
                found = "put to sleep, but is awake" if asleep else "woken, but sleeps or is paused"
                raise ServerError(f"it answers that it was {found}")
            await asyncio.sleep(POLL_S)

    async def _sleeps_now(self) -> bool | None:
        """None when it does not answer, as while it is at work."""
        try:
            return await self._control.is_sleeping()
        except NoAnswer as silence:
            if not silence.arrived:
                raise
            return None
