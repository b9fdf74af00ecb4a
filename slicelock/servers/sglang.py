"""SGLang's memory occupation API, over HTTP.

Seen in SGLang 0.4.10 to 0.5.23: a release while anything runs, a second release, and a resume of what was
not released all end the server; nothing tells what is released. What can be asked safely: `flush_cache`
succeeds under the very condition that `release_memory_occupation` insists on, and `server_info` is answered
by the scheduler after all that was asked before. A server that drops its weights needs them pushed again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import Any

from slicelock.servers.http import HttpClient, NoAnswer, Refused, ServerError
from slicelock.servers.life import life_at
from slicelock.servers.plan import Plan, SleepMode
from slicelock.servers.server import LOAD, POLL_S, ModelServer, SleepRecord, keep_in_mind

log = logging.getLogger("slicelock")

WEIGHTS, CACHE = "weights", "kv_cache"
ALL_TAGS = (CACHE, WEIGHTS, "cuda_graph")
RELEASE, RESUME, CONTINUE = "release", "resume", "continue"
PAUSES = {SleepMode.WAIT: "in_place", SleepMode.KEEP: "retract", SleepMode.ABORT: "abort"}
KNOWS_PAUSES = (0, 5, 6)
"""Before that, every pause aborts."""
SETTLING_S = 5.0
"""How long requests may take to stand still once they are told to."""


class Sglang(ModelServer):
    """An SGLang server. `asleep` says whether its memory is released already; nothing else can.

    `refill`: whether its owner fills dropped weights again.
    """

    def __init__(
        self,
        http: HttpClient,
        plan: Plan,
        asleep: Callable[[], bool],
        *,
        refill: bool = False,
        record: SleepRecord | None = None,
        note: Callable[[], None] = keep_in_mind,
    ) -> None:
        super().__init__(plan, record, note)
        self._http, self._asleep, self._refill = http, asleep, refill
        self._tags = plan.tags or ALL_TAGS

    # ------------------------------------------------------------ to sleep

    async def offload(self) -> None:
        if await self._is_over():
            self._forget()
        await self._find_out()
        if self._released:
            log.info("%s has been released by an earlier attempt", self.name)
        elif self._asleep():
            log.info("%s has released its memory already; it is left so", self.name)
        else:
            await self._fall_asleep()

    @property
    def _released(self) -> bool:
        return any(step.startswith((RESUME, LOAD)) for step in self.record.steps)

    async def _fall_asleep(self) -> None:
        facts = await self._facts()
        dropped = self._check(facts)
        self.record.life = await self._life()
        await self._stand_still(_version(facts))
        await self._release(dropped)

    def _check(self, facts: dict[str, Any]) -> bool:
        """Whether the weights are dropped; ServerError when nothing would be freed, or weights be lost."""
        if facts.get("enable_memory_saver") is not True:
            raise ServerError("it cannot release its memory: start SGLang with --enable-memory-saver")
        dropped = WEIGHTS in self._tags and facts.get("enable_weights_cpu_backup") is not True
        if dropped and not self._refill:
            raise ServerError(
                "it would lose its weights: start SGLang with --enable-weights-cpu-backup, or say "
                "with reload=… of slicelock.hooks.Server how they are pushed again"
            )
        return dropped

    async def _stand_still(self, version: tuple[int, ...]) -> None:
        """Have no request running and none begin; ServerError when that takes too long."""
        mode, drain = self.plan.mode, self.plan.drain
        if mode is SleepMode.KEEP and version < KNOWS_PAUSES:
            raise ServerError("it is older than SGLang 0.5.6, which has no mode 'keep'; use 'wait'")
        if mode is SleepMode.WAIT and not await self._drained(self._is_idle, drain):
            raise ServerError(f"it still answers requests after {drain:g} s; it is left awake")
        if not await self._is_paused():
            self._set(CONTINUE)
            (await self._http.post("/pause_generation", body={"mode": PAUSES[mode]})).checked()
        if not await self._drained(self._is_idle, SETTLING_S):
            raise ServerError("it is paused and still answers requests; it is left awake")

    async def _is_idle(self) -> bool:
        reply = await self._http.post("/flush_cache")
        return reply.status != 400 and reply.checked().ok

    async def _is_paused(self) -> bool:
        """Whether its owner has paused it; versions before 0.5.20 do not tell."""
        return (await self._http.get("/ready")).status == 503

    async def _release(self, dropped: bool) -> None:
        paused, tags = self.record.steps, self._tags
        again = [" ".join([RESUME, *tags])]
        if dropped:
            others = [tag for tag in tags if tag != CACHE]
            again = [" ".join([RESUME, *others]), LOAD, *([f"{RESUME} {CACHE}"] if CACHE in tags else [])]
        self._set(*again, *paused)
        try:
            await self._carry_out(RELEASE, tags)
        except ServerError:
            if not self.record.under_way:
                self._set(*paused)
            raise

    # ------------------------------------------------------------ and back

    async def _undo(self, verb: str, *tags: str) -> None:
        if verb == RESUME:
            await self._carry_out(RESUME, tags)
        else:
            (await self._http.post("/continue_generation", body={})).checked()

    # ------------------------------------------------------------ once, and only once

    async def _carry_out(self, verb: str, tags: tuple[str, ...]) -> None:
        """Ask once. Where no answer comes, the scheduler's next one tells that it was carried out."""

        def sending() -> None:
            self.record.under_way = verb
            self._note()

        path = f"/{verb}_memory_occupation"
        try:
            (await self._http.post(path, body={"tags": list(tags)}, sending=sending)).checked()
        except Refused:
            self.record.under_way = ""
            self._note()
            raise
        except NoAnswer as silence:
            if not silence.arrived:
                raise
            log.warning("%s: %s; looking whether it was carried out", self.name, silence)
            await self._settled()
        self.record.under_way = ""

    async def _find_out(self) -> None:
        if not (verb := self.record.under_way):
            return
        await self._settled()
        done = not self.record.doubtful or self._asleep() is (verb == RELEASE)
        self.record.under_way, self.record.doubtful = "", False
        if verb == RESUME and done:
            self._set(*self.record.steps[1:])
        elif verb == RELEASE and not done:
            self._set(*(step for step in self.record.steps if step == CONTINUE))
        else:
            self._note()

    async def _settled(self) -> None:
        """Wait until the scheduler answers again; NoAnswer when nobody listens there any more."""
        while True:
            try:
                await self._facts()
            except NoAnswer as silence:
                if not silence.arrived:
                    raise
            else:
                return
            await asyncio.sleep(POLL_S)

    async def _facts(self) -> dict[str, Any]:
        reply = await self._http.get("/server_info")
        if reply.status == 404:
            reply = await self._http.get("/get_server_info")
        return reply.checked().facts()

    async def _life(self) -> str:
        """Far from here, how long its start took tells one start from another."""
        if self._http.address.on_this_machine:
            return life_at(self._http.address.port)
        return json.dumps((await self._facts()).get("startup_time") or "")


def _version(facts: dict[str, Any]) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", str(facts.get("version", "")))
    return tuple(int(part) for part in found.groups()) if found else ()
