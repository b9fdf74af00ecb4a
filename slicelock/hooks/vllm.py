"""The hook for a vLLM engine in this process: `LLM`, or `AsyncLLM` on its own event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as Overdue
from typing import Any, TypeVar, cast

from slicelock.errors import ConfigurationError, RestoreFailed, SlicelockError, SnapshotFailed
from slicelock.hooks.moved import Moved, residue
from slicelock.hooks.serving import RESIDUE_GIB, UNDO_S, called, check_refill, in_own_loop, words
from slicelock.loops import running_loop
from slicelock.servers import Kind, NoAnswer, Plan, ServerError, SleepMode, Vllm, fleet
from slicelock.servers.plan import check_seconds, mode_of
from slicelock.servers.vllm import KNOWS_MODES

T = TypeVar("T")

SPARE_S = 5.0
"""How much longer than all deadlines together an event loop is waited for."""


class VllmEngine:
    """A vLLM engine that sleeps while another run has the devices.

    `engine`: an `LLM` or an `AsyncLLM`, started with `enable_sleep_mode=True`. An AsyncLLM is spoken to on
    its own event loop: `loop`, else the one that it runs on, else the one that is running now.
    `level`: 1 keeps the weights in host memory, 2 drops them. `reload` fills dropped weights again, between
    the weights' and the cache's coming back: a callable (a coroutine function runs on the engine's loop), or
    the name of a method of the workers.
    `mode`: what becomes of requests under way: `wait` for them, `keep` them standing still, `abort` them.
    `drain`, `timeout`, `deadline`: seconds for requests to end, for one call, and for everything.
    `residue_gib`: what the engine keeps on each device while it sleeps.

    An engine that is found asleep stays asleep. ConfigurationError for what is no such engine.
    """

    def __init__(
        self,
        engine: Any,
        *,
        level: int = 1,
        mode: str = "wait",
        reload: Callable[[], object] | str | None = None,
        drain: float = 30.0,
        timeout: float = 60.0,
        deadline: float = 80.0,
        residue_gib: float = RESIDUE_GIB,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        method, self._refill = (reload, None) if isinstance(reload, str) else ("", reload)
        check_refill(Kind.VLLM, level, reload)
        check_seconds("deadline", deadline)
        plan = Plan(level=level, mode=mode_of(mode), reload=method, drain=drain, timeout=timeout)
        self._engine, self._deadline, self._loop = (
            EngineControl(engine, timeout),
            deadline,
            loop or running_loop(),
        )
        self._servers = [Vllm(self._engine, plan)]
        self.residue_bytes = residue(residue_gib)

    def offload(self) -> Moved:
        """Have the engine asleep; SnapshotFailed says why it is not."""
        failures = self._run(fleet.offload(self._servers, self._deadline, UNDO_S, self._load))
        if failures:
            raise SnapshotFailed(words(failures))
        return Moved(0)

    def reload(self) -> Moved:
        """Wake the engine if `offload` has put it to sleep; RestoreFailed says why it is not awake."""
        failures = self._run(fleet.wake(self._servers, self._deadline, self._load))
        if failures:
            raise RestoreFailed(words(failures))
        return Moved(0)

    async def _load(self) -> None:
        if self._refill is None:
            raise ConfigurationError("nothing is known that fills the weights again")
        if self._engine.is_async:
            await called(self._refill)
        else:  # in the thread that speaks to the engine, as its owner would
            self._refill()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it where the engine is spoken to, and wait for it."""
        if not self._engine.is_async:
            return in_own_loop(work)
        loop = self._engine.loop or self._loop
        if loop is None or not loop.is_running() or loop is running_loop():
            work.close()
            raise SlicelockError(_why_not(loop, self._engine.name))
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(self._deadline + UNDO_S + SPARE_S)
        except Overdue:
            future.cancel()
            raise SlicelockError(f"The event loop of {self._engine.name} does not come round.") from None


def _why_not(loop: asyncio.AbstractEventLoop | None, name: str) -> str:
    if loop is None:
        return f"The event loop of {name} is not known yet; give it as loop=… of VllmEngine."
    if loop.is_running():
        return f"The hook of {name} waits for that engine's event loop, so it cannot be called on it."
    return f"The event loop of {name} is not running, so the engine cannot be spoken to."


class EngineControl:
    """The questions to an engine, as calls of its methods."""

    def __init__(self, engine: Any, timeout: float) -> None:
        self._engine, self._timeout, self.name = engine, timeout, type(engine).__name__
        self._inner = getattr(engine, "llm_engine", engine)  # an LLM has it, and some questions only there
        missing = [name for name in ("sleep", "wake_up") if not callable(getattr(engine, name, None))]
        missing += [] if callable(self._method("is_sleeping")) else ["is_sleeping"]
        if missing:
            raise ConfigurationError(
                f"{self.name} is no vLLM engine that can sleep: it has no {' and no '.join(missing)}.",
                advice="Give VllmEngine an LLM or an AsyncLLM.",
            )
        if getattr(self._model_config(), "enable_sleep_mode", None) is False:
            raise ConfigurationError(
                f"{self.name} was started without sleep mode.", advice="Start it with enable_sleep_mode=True."
            )
        self.is_async = inspect.iscoroutinefunction(engine.sleep)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which an AsyncLLM takes its outputs; None before its first request."""
        handler = getattr(self._engine, "output_handler", None)
        return handler.get_loop() if isinstance(handler, asyncio.Future) else None

    async def is_sleeping(self) -> bool:
        return bool(await self._call(self._method("is_sleeping")))

    async def sleep(self, level: int, mode: SleepMode) -> None:
        modes = {"mode": str(mode)} if self._knows_modes else {}
        await self._call(self._engine.sleep, level=level, **modes)

    async def wake_up(self, tags: Sequence[str]) -> None:
        await self._call(self._engine.wake_up, **({"tags": list(tags)} if tags else {}))

    async def load(self, method: str) -> None:
        await self._call(self._engine.collective_rpc, method)

    async def running(self) -> int | None:
        for owner in (self._inner, getattr(self._engine, "output_processor", None)):
            if callable(count := getattr(owner, "get_num_unfinished_requests", None)):
                return int(cast(int, count()))
        return None

    async def version(self) -> tuple[int, ...]:
        return KNOWS_MODES if self._knows_modes else ()

    async def life(self) -> str:
        return ""

    @property
    def _knows_modes(self) -> bool:
        known = inspect.signature(self._engine.sleep).parameters.values()
        return any(one.name == "mode" or one.kind is inspect.Parameter.VAR_KEYWORD for one in known)

    def _method(self, name: str) -> Any:
        return getattr(self._engine, name, None) or getattr(self._inner, name, None)

    def _model_config(self) -> Any:
        owners = (self._engine, self._inner, getattr(self._inner, "vllm_config", None))
        return next((found for one in owners if (found := getattr(one, "model_config", None))), None)

    async def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """ServerError for whatever it raises; NoAnswer when a coroutine takes too long."""
        asked = getattr(method, "__name__", "a call")
        try:
            result = method(*arguments, **named)
            if not inspect.isawaitable(result):
                return result
            async with asyncio.timeout(self._timeout):
                return await result
        except TimeoutError:
            raise NoAnswer(f"{asked} did not return within {self._timeout:g} s") from None
        except Exception as failure:
            raise ServerError(f"{asked} failed: {type(failure).__name__}: {failure}") from failure
