"""Hooks of the client, commanded by a real agent."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slicelock
from slicelock.embedded import EmbeddedServer
from slicelock.errors import AcquireTimeout, ConfigurationError, NotGranted
from slicelock.hooks import SelfOffload
from slicelock.local_agent import LocalAgent
from tests.support.sides import ROOT, LoopSide, Side, ThreadSide, environment


class Recorder:
    """A hook that writes down what happens to it."""

    def __init__(self, log: list[str], name: str, entered: threading.Event | None = None) -> None:
        self.log, self.name, self.entered = log, name, entered
        self.go = threading.Event()
        if entered is None:
            self.go.set()

    def offload(self) -> int:
        if self.entered:
            self.entered.set()
        self.go.wait(20)
        self.log.append(f"{self.name} offload")
        return 1000

    def reload(self) -> int:
        self.log.append(f"{self.name} reload")
        return 1000


class Coroutines:
    """The same with coroutine methods."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    async def offload(self) -> None:
        await asyncio.sleep(0)
        self.log.append(f"{self.name} offload on {asyncio.current_task() is not None}")

    async def reload(self) -> None:
        self.log.append(f"{self.name} reload")


@pytest.fixture
def agented(server: EmbeddedServer, pool: str) -> Iterator[None]:
    """An agent with the slices a and b on simulated devices."""
    folder = Path(tempfile.mkdtemp(prefix="slicelock-test-", dir="/dev/shm"))
    env = {
        "SLICELOCK_REDIS_URL": server.url,
        "SLICELOCK_POOL": pool,
        "SLICELOCK_NODE": "n1",
        "SLICELOCK_STATE_DIR": str(folder / "state"),
        "SLICELOCK_SIM_DIR": str(folder / "sim"),
        "SLICELOCK_BEAT": "0.2",
        "SLICELOCK_HOOK_DEADLINE": "15",
    }
    try:
        with LocalAgent({"a": "sim:d1", "b": "sim:d2"}, env) as agent:
            yield
            print(agent.log())
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def make(kind: type[Side], server: EmbeddedServer, pool: str, agented: None) -> Iterator[Callable[..., Side]]:
    made: list[Side] = []

    def start(kind: type[Side] = kind) -> Side:
        made.append(kind(server.url, pool))
        return made[-1]

    yield start
    for side in made:
        side.close()


@pytest.fixture
def side(make: Callable[..., Side]) -> Side:
    return make()


def register(side: Side, hook: Any, run: str, **options: Any) -> None:
    if isinstance(side, LoopSide):

        async def inside() -> None:
            slicelock.register(hook, settings=side.settings(run), **options)

        side.submit(inside()).result(10)
    else:
        slicelock.register(hook, settings=side.settings(run), **options)


def test_offload_before_the_other_run_and_reload_before_the_own_next_turn(side: Side) -> None:
    log: list[str] = []
    register(side, Recorder(log, "r1"), "r1")
    first = side.acquire("a", run="r1")
    side.give(first)
    assert log == []  # nobody else wants it: nothing moves
    second = side.acquire("a", run="r2")
    assert log == ["r1 offload"]
    side.give(second)
    third = side.acquire("a", run="r1")
    assert log == ["r1 offload", "r1 reload"]
    assert third.moved
    side.give(third)


def test_hooks_of_several_slices_are_called_for_theirs(side: Side) -> None:
    log: list[str] = []
    for name in ("a", "b"):
        register(side, Recorder(log, name), "r1", slices=[name])
    side.give(side.acquire("a", "b", run="r1"))
    side.give(side.acquire("b", run="r2"))
    assert log == ["b offload"]


@pytest.mark.parametrize("slices", [(), ("a", "b")])
def test_a_hook_of_several_slices_is_not_called_while_one_is_in_use(
    side: Side, slices: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []
    register(side, Recorder(log, "r1"), "r1", slices=slices)
    both = side.acquire("a", "b", run="r1")
    side.give(both, "a")
    side.give(side.acquire("a", run="r2"))  # its state went in another way
    assert log == []
    assert "It serves b too, where this run has its turn. Register a hook for each slice" in caplog.text
    side.give(both)
    side.give(side.acquire("b", run="r2"))
    assert log == ["r1 offload"]


@pytest.mark.parametrize("slices", [(), ("a", "b")])
def test_no_turn_begins_while_the_state_is_away_for_another_slice(
    side: Side, slices: tuple[str, ...]
) -> None:
    log: list[str] = []
    register(side, Recorder(log, "r1"), "r1", slices=slices)
    side.give(side.acquire("a", "b", run="r1"))
    side.give(side.acquire("b", run="r2"))
    assert log == ["r1 offload"]
    with pytest.raises(NotGranted, match="No turn on a: Recorder has not brought its state back"):
        side.acquire("a", run="r1")
    side.give(side.acquire("a", run="r2"))  # nothing is left of the refused one
    side.give(side.acquire("a", "b", run="r1"))
    assert log == ["r1 offload", "r1 reload"]


def test_the_state_of_several_slices_comes_back_when_the_last_of_them_does(side: Side) -> None:
    log: list[str] = []
    register(side, Recorder(log, "r1"), "r1")
    side.give(side.acquire("a", "b", run="r1"))
    others = side.acquire("a", "b", run="r2")
    side.give(others, "b")
    with pytest.raises(NotGranted, match="No turn on b: Recorder has not brought its state back"):
        side.acquire("b", run="r1")
    assert log == ["r1 offload"]  # the other run is at work on a
    side.give(others)
    side.give(side.acquire("a", "b", run="r1"))
    assert log == ["r1 offload", "r1 reload"]


def test_a_slow_hook_stops_no_heartbeat(side: Side) -> None:
    """The run holds another slice meanwhile, for several leases."""
    log: list[str] = []
    hook = Recorder(log, "r1", threading.Event())
    register(side, hook, "r1", slices=["a"])
    short = {"lease": 1.0, "renew": 0.2, "wait_lease": 1.0, "poll": 0.2}
    held = side.acquire("b", run="r1", lane="other", facts=short)
    side.give(side.acquire("a", run="r1", facts=short))
    waiting = side.ask("a", run="r2")
    assert hook.entered
    assert hook.entered.wait(10)
    beats = threading.Event()
    beats.wait(3.0)
    held.check()
    assert not waiting.done()
    hook.go.set()
    side.give(waiting.result(15))
    held.check()
    side.give(held)


def test_coroutines_are_awaited_on_their_loop(make: Callable[..., Side]) -> None:
    side, log = make(LoopSide), list[str]()
    register(side, Coroutines(log, "r1"), "r1")
    side.give(side.acquire("a", run="r1"))
    side.give(side.acquire("a", run="r2"))
    side.give(side.acquire("a", run="r1"))
    assert log == ["r1 offload on True", "r1 reload"]


def test_a_process_that_only_offers_hooks_is_known(make: Callable[..., Side]) -> None:
    """Its slices are named, so it need not take a turn itself; another process of the run does."""
    side, log = make(ThreadSide), list[str]()
    register(side, Recorder(log, "worker"), "r1", slices=["a"])
    driver = "import slicelock; slicelock.Slice('a').acquire().yield_()"
    subprocess.run(
        [sys.executable, "-c", driver], env=environment(side, run="r1", MEMBER="driver"), check=True, cwd=ROOT
    )
    side.give(side.acquire("a", run="r2"))
    assert log == ["worker offload"]


def test_self_offload_is_not_commanded(side: Side) -> None:
    calls: list[str] = []

    class Watched(SelfOffload):
        def offload(self) -> None:
            calls.append("offload")

    register(side, Watched(residue_gib=1), "r1")
    side.give(side.acquire("a", run="r1"))
    side.give(side.acquire("a", run="r2"))
    assert calls == []


def test_after_a_hook_that_failed_reload_runs_all_the_same(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent moves the state in another way, and says why."""
    log: list[str] = []

    class Broken(Recorder):
        def offload(self) -> int:
            raise RuntimeError("the pool is full")

    register(side, Broken(log, "r1"), "r1")
    side.give(side.acquire("a", run="r1"))
    side.give(side.acquire("a", run="r2"))
    assert "the pool is full" in caplog.text
    side.give(side.acquire("a", run="r1"))
    assert log == ["r1 reload"]


def test_a_hook_that_asks_for_the_turn_it_makes_way_for_is_refused(make: Callable[..., Side]) -> None:
    side = make(ThreadSide)
    said: list[str] = []
    asked, later = slicelock.Slice("a", settings=side.settings("r1")), threading.Event()

    class Asking(Recorder):
        def offload(self) -> int:
            with pytest.raises(NotGranted, match="A hook") as refused:
                asked.acquire()
            said.append(str(refused.value))
            side.party("r1").companion.hooks.call(ask)
            return 0

    def ask() -> None:  # as `on_lost`, on the same thread
        with pytest.raises(AcquireTimeout):
            asked.acquire(timeout=0)
        later.set()

    register(side, Asking([], "r1"), "r1")
    side.give(side.acquire("a", run="r1"))
    turn = side.acquire("a", run="r2")
    assert said
    assert later.wait(10)
    side.give(turn)


def test_a_coroutine_that_does_so_is_too(make: Callable[..., Side]) -> None:
    side, said = make(LoopSide), list[str]()

    class Asking(Coroutines):
        async def offload(self) -> None:
            with pytest.raises(NotGranted) as refused:
                await slicelock.AsyncSlice("a", settings=side.settings("r1")).acquire()
            said.append(str(refused.value))

    register(side, Asking([], "r1"), "r1")
    side.give(side.acquire("a", run="r1"))
    side.give(side.acquire("a", run="r2"))
    assert "A hook asked for a turn on a" in said[0]


def test_one_slice_may_be_named_without_a_list(make: Callable[..., Side]) -> None:
    side = make(ThreadSide)
    register(side, Recorder([], "r1"), "r1", slices="ab")
    assert side.party("r1").companion.hooks.offers[0].slices == ("ab",)


def test_a_class_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"it is a class\. Register an object of it: Recorder\(…\)"):
        slicelock.register(Recorder)


@pytest.mark.parametrize("hook", [object(), type("Half", (), {"offload": lambda self: None})()])
def test_an_object_without_the_methods_is_refused(hook: Any) -> None:
    with pytest.raises(ConfigurationError, match="no method"):
        slicelock.register(hook)
