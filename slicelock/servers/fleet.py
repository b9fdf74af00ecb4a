"""Several servers of one run: all asleep, or all as they were."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from slicelock.errors import SlicelockError
from slicelock.servers.server import ModelServer

log = logging.getLogger("slicelock")

Load = Callable[[], Awaitable[None]]
Failures = dict[str, str]


async def offload(
    servers: Sequence[ModelServer], allowed: float, undo_allowed: float, load: Load | None = None
) -> Failures:
    """Have all of them asleep; returns why not, by server. Then those that were put to sleep are woken.

    `allowed` seconds for it, `undo_allowed` for the way back. `load` as for `wake`.
    """
    failures = await _each(servers, lambda server: server.offload(), "be put to sleep", allowed)
    if failures:
        begun = [server for server in servers if server.record.steps]
        for name, why in (await wake(begun, undo_allowed, load)).items():
            failures[name] = f"{failures[name]}; {why}" if name in failures else why
    return failures


async def wake(servers: Sequence[ModelServer], allowed: float, load: Load | None = None) -> Failures:
    """Undo on each server what was done to it; returns why not, by server.

    `load` fills the weights of those that dropped theirs, once, when all of these have room for them again.
    """
    failures = await _each(servers, lambda server: server.wake(), "be woken", allowed)
    waiting = [server for server in servers if server.awaits_load and server.name not in failures]
    if not waiting:
        return failures
    if why := await _loaded(load):
        return failures | {server.name: why for server in waiting}
    for server in waiting:
        server.loaded()
    return failures | await _each(waiting, lambda server: server.wake(), "be woken", allowed)


async def _loaded(load: Load | None) -> str:
    if load is None:
        return "its weights were dropped, and nothing is known that fills them again"
    try:
        await load()
    except Exception as failure:  # it is the job's own code
        log.exception("filling the weights of model servers failed")
        return f"filling its weights failed: {type(failure).__name__}: {failure}"
    return ""


async def _each(
    servers: Sequence[ModelServer],
    verb: Callable[[ModelServer], Awaitable[None]],
    words: str,
    allowed: float,
) -> Failures:
    async def attempt(server: ModelServer) -> str:
        try:
            async with asyncio.timeout(allowed):
                await verb(server)
        except TimeoutError:
            return f"it could not {words} within {allowed:g} s"
        except SlicelockError as failure:
            return str(failure)
        return ""

    reasons = await asyncio.gather(*(attempt(server) for server in servers))
    return {server.name: why for server, why in zip(servers, reasons, strict=True) if why}
