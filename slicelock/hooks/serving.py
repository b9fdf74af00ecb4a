"""What the hooks for model servers and for engines in the process have in common."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from slicelock.errors import ConfigurationError
from slicelock.loops import running_loop
from slicelock.servers import Kind

T = TypeVar("T")

RESIDUE_GIB = 4.0
"""What a sleeping engine keeps on each device: its context, kernels, captured graphs, communicators."""
UNDO_S = 30.0
"""How long going back may take; with `deadline` it stays below an agent's own patience, 120 s."""


def check_refill(kind: Kind, level: int, reload: object) -> None:
    """ConfigurationError where weights would be dropped for good."""
    if kind is Kind.VLLM and level == 2 and not reload:
        raise ConfigurationError(
            "vLLM's sleep level 2 drops the weights.",
            advice="Say with reload=… how they are filled again, or use level 1.",
        )


def words(failures: Mapping[str, str]) -> str:
    """Why it failed, by server, in one line."""
    return "; ".join(f"{name}: {why}" for name, why in failures.items())


async def called(work: Callable[[], object]) -> None:
    """Call the job's own code: a coroutine function on this loop, a plain one beside it."""
    if inspect.iscoroutinefunction(work):
        await cast(Callable[[], Awaitable[object]], work)()
        return
    result = await asyncio.to_thread(work)
    if inspect.isawaitable(result):
        await result


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, whatever runs in this thread already."""
    if running_loop() is None:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, "slicelock-server") as thread:
        return thread.submit(asyncio.run, work).result()
