"""`VllmEngine` with engines that behave as LLM and AsyncLLM do: no vLLM is needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from slicelock.companion import Offer
from slicelock.companion.hook_runner import HookRunner
from slicelock.errors import ConfigurationError, RestoreFailed, SlicelockError, SnapshotFailed
from slicelock.hooks import Hook, VllmEngine
from tests.support.wait import wait_until


class Core:
    """What both kinds of engines share: the state, and what they were asked."""

    def __init__(self, *, enabled: bool = True, version: tuple[int, int] = (0, 25)) -> None:
        self.asleep: set[str] = set()
        self.running, self.version, self.weights = 0, version, "loaded"
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[str] = set()
        self.model_config = type("Config", (), {"enable_sleep_mode": enabled})()
        self.fails: dict[str, Exception] = {}
        self.frees = True

    def note(self, *call: Any) -> None:
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)
        if failure := self.fails.get(call[0]):
            raise failure

    def fall_asleep(self, level: int) -> None:
        if self.frees:
            self.asleep, self.weights = {"weights", "kv_cache"}, "kept" if level == 1 else "dropped"

    def awaken(self, tags: list[str] | None) -> None:
        self.asleep -= set(tags or self.asleep)
        if "weights" not in self.asleep and self.weights == "kept":
            self.weights = "loaded"

    def get_num_unfinished_requests(self) -> int:
        return self.running


class LlmEngine:
    def __init__(self, core: Core) -> None:
        self.core, self.model_config = core, core.model_config
        self.get_num_unfinished_requests = core.get_num_unfinished_requests

    def is_sleeping(self) -> bool:
        self.core.note("is_sleeping")
        return bool(self.core.asleep)


class OldLLM:
    """As LLM was before modes."""

    def __init__(self, **traits: Any) -> None:
        self.core = Core(**traits)
        self.llm_engine = LlmEngine(self.core)

    def sleep(self, level: int = 1) -> None:
        self.core.note("sleep", level)
        self.core.fall_asleep(level)

    def wake_up(self, tags: list[str] | None = None) -> None:
        self.core.note("wake_up", tags)
        self.core.awaken(tags)

    def collective_rpc(self, method: str) -> list[None]:
        self.core.note("collective_rpc", method)
        self.core.weights = "loaded"
        return [None]


class LLM(OldLLM):
    """As LLM is; its in-process engine refuses to wait."""

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        self.core.note("sleep", level, mode)
        if mode == "wait":
            raise ValueError("'wait' mode can't be used in inproc-engine mode")
        self.core.fall_asleep(level)


class AsyncLLM:
    """As AsyncLLM is: everything on its event loop, which its output handler belongs to."""

    def __init__(self, **traits: Any) -> None:
        self.core = Core(**traits)
        self.output_processor = self.core
        self.model_config = self.core.model_config
        self.output_handler: asyncio.Future[None] | None = None
        self.held: asyncio.Event | None = None

    async def is_sleeping(self) -> bool:
        self.core.note("is_sleeping")
        return bool(self.core.asleep)

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        self.core.note("sleep", level, mode)
        if self.held is not None:
            await self.held.wait()
        self.core.fall_asleep(level)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        self.core.note("wake_up", tags)
        self.core.awaken(tags)

    async def collective_rpc(self, method: str) -> list[None]:
        self.core.note("collective_rpc", method)
        return [None]


def changing(core: Core) -> list[tuple[Any, ...]]:
    return [call for call in core.calls if call[0] != "is_sleeping"]


def hook(engine: Any, **options: Any) -> VllmEngine:
    return VllmEngine(engine, **{"drain": 0.3, "timeout": 1.0, "deadline": 2.0, **options})


async def aside(work: Callable[[], Any]) -> Any:
    """As slicelock calls a hook: on a thread of its own."""
    return await asyncio.to_thread(work)


# ---------------------------------------------------------------- LLM


def test_an_llm_sleeps_and_wakes() -> None:
    llm = LLM()
    one = hook(llm)
    one.offload()
    assert llm.core.asleep
    one.reload()
    assert (llm.core.asleep, llm.core.weights) == (set(), "loaded")
    assert changing(llm.core) == [("sleep", 1, "keep"), ("wake_up", None)]
    assert llm.core.threads == {threading.current_thread().name}


def test_an_old_llm_is_not_given_a_mode() -> None:
    llm = OldLLM()
    hook(llm).offload()
    assert changing(llm.core) == [("sleep", 1)]
    with pytest.raises(
        SnapshotFailed, match=r"OldLLM: it is older than vLLM 0\.17, which has no mode 'keep'"
    ):
        hook(OldLLM(), mode="keep").offload()


def test_an_llm_that_generates_is_left_awake() -> None:
    llm = LLM()
    llm.core.running = 1
    with pytest.raises(
        SnapshotFailed, match=r"LLM: it still answers requests after 0\.3 s; it is left awake"
    ):
        hook(llm).offload()
    assert not changing(llm.core)


def test_an_llm_that_was_put_to_sleep_stays_asleep() -> None:
    llm = LLM()
    llm.core.asleep = {"kv_cache"}
    one = hook(llm)
    one.offload()
    one.reload()
    assert (llm.core.asleep, changing(llm.core)) == ({"kv_cache"}, [])


def test_it_is_asked_once_however_often_it_is_called() -> None:
    llm = LLM()
    one = hook(llm)
    for _ in range(2):
        one.offload()
    for _ in range(2):
        one.reload()
    assert changing(llm.core) == [("sleep", 1, "keep"), ("wake_up", None)]


def test_level_2_fills_the_weights_in_the_engines_own_thread() -> None:
    llm, seen = LLM(), list[tuple[set[str], str]]()
    one = hook(
        llm, level=2, reload=lambda: seen.append((set(llm.core.asleep), threading.current_thread().name))
    )
    one.offload()
    assert llm.core.weights == "dropped"
    one.reload()
    assert seen == [({"kv_cache"}, threading.current_thread().name)]
    assert changing(llm.core)[1:] == [("wake_up", ["weights"]), ("wake_up", ["kv_cache"])]


def test_level_2_with_a_method_of_the_workers() -> None:
    llm = LLM()
    one = hook(llm, level=2, reload="reload_weights")
    one.offload()
    one.reload()
    assert ("collective_rpc", "reload_weights") in llm.core.calls
    assert (llm.core.asleep, llm.core.weights) == (set(), "loaded")


def test_a_sleep_that_fails_is_undone_and_named() -> None:
    llm = LLM()
    llm.core.fails["sleep"] = AssertionError("Memory usage increased after sleeping.")
    with pytest.raises(SnapshotFailed, match=r"LLM: sleep failed: AssertionError: Memory usage increased"):
        hook(llm).offload()
    assert ("wake_up", None) not in llm.core.calls


def test_a_sleep_without_effect_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicelock.servers.vllm.SETTLING_S", 0.1)
    llm = LLM()
    llm.core.frees = False
    with pytest.raises(SnapshotFailed, match="LLM: it answers that it was put to sleep, but is awake"):
        hook(llm).offload()


def test_a_waking_that_fails_can_be_tried_again() -> None:
    llm = LLM()
    one = hook(llm)
    one.offload()
    llm.core.fails["wake_up"] = RuntimeError("CUDA error: out of memory")
    with pytest.raises(RestoreFailed, match=r"LLM: wake_up failed: RuntimeError: CUDA error: out of memory"):
        one.reload()
    llm.core.fails.clear()
    one.reload()
    assert llm.core.asleep == set()


# ---------------------------------------------------------------- AsyncLLM


async def test_an_async_engine_is_spoken_to_on_its_own_loop() -> None:
    engine = AsyncLLM()
    one = hook(engine)
    await aside(one.offload)
    assert engine.core.asleep
    await aside(one.reload)
    assert changing(engine.core) == [("sleep", 1, "keep"), ("wake_up", None)]
    assert engine.core.threads == {threading.current_thread().name}


async def test_the_loop_of_its_output_handler_wins() -> None:
    engine = AsyncLLM()
    engine.output_handler = asyncio.get_running_loop().create_future()
    one = await aside(lambda: hook(engine))  # made where no loop runs
    await aside(one.offload)
    assert engine.core.threads == {threading.current_thread().name}
    engine.output_handler.cancel()


async def test_the_loop_can_be_given() -> None:
    engine, loop = AsyncLLM(), asyncio.get_running_loop()
    one = await aside(lambda: hook(engine, loop=loop))
    await aside(one.offload)
    assert engine.core.asleep


async def test_without_a_loop_it_says_so() -> None:
    one = await aside(lambda: hook(AsyncLLM()))
    with pytest.raises(SlicelockError, match="event loop of AsyncLLM is not known yet; give it as loop="):
        await aside(one.offload)


def test_a_loop_that_has_ended_is_a_failure() -> None:
    async def make() -> VllmEngine:
        return hook(AsyncLLM())

    one = asyncio.run(make())
    with pytest.raises(SlicelockError, match="event loop of AsyncLLM is not running"):
        one.offload()


async def test_it_cannot_be_called_on_the_engines_own_loop() -> None:
    one = hook(AsyncLLM())
    with pytest.raises(SlicelockError, match="cannot be called on it"):
        one.offload()


async def test_async_requests_are_waited_for() -> None:
    engine = AsyncLLM()
    engine.core.running = 1
    one = hook(engine, drain=10, deadline=20)
    offloading = asyncio.create_task(aside(one.offload))
    while len(engine.core.calls) < 1:
        await asyncio.sleep(0)
    assert not changing(engine.core)
    engine.core.running = 0
    await offloading
    assert engine.core.asleep


async def test_a_sleep_that_takes_too_long_is_looked_after() -> None:
    engine = AsyncLLM()
    engine.held = asyncio.Event()
    one = hook(engine, timeout=0.1, deadline=0.5)
    with pytest.raises(SnapshotFailed, match=r"AsyncLLM: it could not be put to sleep within 0\.5 s"):
        await aside(one.offload)
    assert [call for call in changing(engine.core) if call[0] == "sleep"] == [("sleep", 1, "keep")]


async def test_coroutine_functions_fill_the_weights_on_the_engines_loop() -> None:
    engine, loops = AsyncLLM(), list[asyncio.AbstractEventLoop]()

    async def push() -> None:
        loops.append(asyncio.get_running_loop())

    one = hook(engine, level=2, reload=push)
    await aside(one.offload)
    await aside(one.reload)
    assert loops == [asyncio.get_running_loop()]


async def test_plain_functions_that_fill_the_weights_do_not_hold_up_the_loop() -> None:
    engine, loop = AsyncLLM(), asyncio.get_running_loop()

    def push() -> None:  # as a trainer does that speaks to the engine from outside
        asyncio.run_coroutine_threadsafe(engine.collective_rpc("update"), loop).result(5)

    one = hook(engine, level=2, reload=push)
    await aside(one.offload)
    await aside(one.reload)
    assert ("collective_rpc", "update") in engine.core.calls


# ---------------------------------------------------------------- refused, and as a hook


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        (object(), {}, "object is no vLLM engine that can sleep: it has no sleep and no wake_up and no is_s"),
        (LLM(enabled=False), {}, "LLM was started without sleep mode. Start it with enable_sleep_mode=True."),
        (AsyncLLM(enabled=False), {}, "AsyncLLM was started without sleep mode."),
        (LLM(), {"level": 2}, "sleep level 2 drops the weights"),
        (LLM(), {"level": 0}, "There is no sleep level 0"),
        (LLM(), {"mode": "now"}, "is no mode of going to sleep"),
        (LLM(), {"deadline": 0}, "0 s for 'deadline' makes no sense"),
        (LLM(), {"residue_gib": -1}, "A residue of -1 GiB is not possible"),
    ],
)
def test_what_cannot_work_is_refused_at_once(engine: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        VllmEngine(engine, **options)
    assert words in str(refused.value)


def test_commands_of_an_agent_reach_the_engine() -> None:
    llm = LLM()
    one = hook(llm, residue_gib=1)
    offer = Offer(one, (), None)
    runner = HookRunner(lambda: None)
    runner.offers = [offer]
    for n, what in enumerate(("offload", "reload")):
        runner.submit({"n": str(n), "what": what, "slice": "s"})
        assert wait_until(lambda: runner.answers)[str(n), what]["outcome"] == "done"
        runner.answers.clear()
    thread = runner.stop()
    assert thread
    thread.join()
    assert isinstance(one, Hook)
    assert offer.described()["residue"] == 1024**3
    assert changing(llm.core) == [("sleep", 1, "keep"), ("wake_up", None)]
