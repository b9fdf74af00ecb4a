"""A run that froze itself gets a turn that the agent asks for, and no longer than it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from slicelock_agent.advocate import BREATH_S, FIRST_REST_S, SILENCE_S, Advocate
from slicelock_agent.backends.base import Truth
from slicelock_agent.backends.cuda.stuck import waits_in
from slicelock_agent.reconcile import Stay
from slicelock_agent.registry import Run

from slicelock.embedded import EmbeddedServer
from slicelock.picture import Picture, RequestView
from slicelock.settings import AgentSettings
from slicelock.states import RunState
from slicelock.store import AsyncStore
from slicelock.wire import Acquire, Cancel, Declare, Status, Yield
from tests.support.gpu_rig import ProcessRegistry, processes
from tests.support.wait import wait_until


class Stage:
    """An advocate for run `r` on the slice `s`, with a clock that the test moves."""

    def __init__(self, store: AsyncStore, pool: str, pid: int, registry: Any) -> None:
        self.store, self.pool, self.now, self.registry = store, pool, 1000.0, registry
        registry.runs["r"] = Run("r", "job")
        [self.process] = found = registry.processes("r")
        registry.processes = lambda run: found
        self.process.heard_at, self.told = self.now, 0
        self.stay = Stay("r", RunState.SAVED, image="r@1")
        self.waits = False
        self.strays, self.looked = Truth.LOADED, 0

        async def strays(subject: object, deadline: float) -> Truth:
            self.looked += 1
            return self.strays

        accelerator = SimpleNamespace(waits=lambda pid: self.waits, exclusive=False, strays=strays)
        at = SimpleNamespace(
            name="s",
            page=SimpleNamespace(stays={"r": self.stay}, top=1),
            accelerator=accelerator,
            may_be_saved=lambda run: run not in self.page.stays,
            moved_elsewhere=lambda run: False,
            subject=lambda run, fence: (run, fence),
            deadline=lambda subject: 1.0,
        )
        switcher: Any = SimpleNamespace(at=at, wanted=SimpleNamespace(run=""))
        self.page = at.page
        self.in_touch_since = 0.0
        self.advocate = Advocate(
            store, "n1", registry, lambda: [switcher], lambda: self.in_touch_since, clock=lambda: self.now
        )

    async def after(self, seconds: float, *, heard: bool = False) -> None:
        """Time passes, in which the process beats or not; then the advocate looks."""
        self.now += seconds
        if heard:
            self.process.heard_at = self.now
        await self.advocate.look()

    async def holder(self) -> RequestView | None:
        reply = await self.store.run(Status())
        return Picture.of(self.pool, reply.picture).slices[0].holder

    async def other(self, k: int) -> str:
        """Another run asks for the slice; the outcome."""
        command = Acquire("x", "job", "main", k, "0", 1, ("s",), "b:1:1:1", 60_000, 60_000)
        return (await self.store.run(command)).outcome


@pytest.fixture
def pid() -> Iterator[int]:
    with processes(1) as [one]:
        yield one


@pytest.fixture
async def stage(server: EmbeddedServer, tmp_path: Path, pid: int, pool: str) -> AsyncIterator[Stage]:
    settings = AgentSettings(redis_url=server.url, pool=pool, state_dir=tmp_path)  # type: ignore[arg-type]
    store = AsyncStore(settings, name="agent")
    await store.open()
    await store.run(Declare("s", {}))
    registry = ProcessRegistry(SimpleNamespace(processes={}))
    registry.pids["r"] = [pid]
    yield Stage(store, settings.pool, pid, registry)
    await store.aclose()


async def test_a_run_that_is_heard_of_is_left_alone(stage: Stage) -> None:
    for _ in range(5):
        await stage.after(5, heard=True)
    assert await stage.holder() is None


async def test_a_silent_run_gets_a_turn_until_it_breathes(stage: Stage) -> None:
    await stage.after(SILENCE_S + 1)
    holder = await stage.holder()
    assert holder is not None
    assert (holder.run, holder.job, holder.lane, holder.phase) == ("r", "job", "agent-n1", "thaw")
    await stage.after(2)
    assert await stage.holder() is not None
    await stage.after(2, heard=True)
    assert await stage.holder() is None
    await stage.after(SILENCE_S + 1)
    holder = await stage.holder()
    assert holder is not None
    assert holder.k == 2
    await stage.after(1, heard=True)


async def test_after_an_outage_of_redis_runs_have_time_to_be_heard_of(stage: Stage) -> None:
    stage.in_touch_since = stage.now + SILENCE_S
    await stage.after(SILENCE_S + 1)
    assert await stage.holder() is None
    await stage.after(SILENCE_S + 1)
    assert await stage.holder() is not None


async def test_it_waits_like_anyone_else(stage: Stage) -> None:
    assert await stage.other(1) == "HELD"
    await stage.after(SILENCE_S + 1)
    assert (await stage.holder()).run == "x"  # type: ignore[union-attr]
    await stage.store.run(Yield("x", "main", 1, "0"))
    await stage.after(2)
    assert (await stage.holder()).run == "r"  # type: ignore[union-attr]
    assert await stage.other(2) == "QUEUED"
    await stage.after(2, heard=True)
    assert (await stage.holder()).run == "x"  # type: ignore[union-attr]


async def test_a_run_that_breathes_before_its_turn_asks_no_more(stage: Stage) -> None:
    assert await stage.other(1) == "HELD"
    await stage.after(SILENCE_S + 1)
    await stage.after(2, heard=True)
    await stage.store.run(Yield("x", "main", 1, "0"))
    assert await stage.holder() is None


async def test_a_run_that_never_breathes_does_not_keep_its_turn(stage: Stage) -> None:
    await stage.after(SILENCE_S + 1)
    await stage.after(BREATH_S + 1)
    assert await stage.holder() is None
    await stage.after(FIRST_REST_S - 1)
    assert await stage.holder() is None
    await stage.after(2)
    assert await stage.holder() is not None
    await stage.after(BREATH_S + 1)
    await stage.after(FIRST_REST_S + 1)
    assert await stage.holder() is None  # each rest is twice as long


async def test_an_agent_that_starts_anew_goes_on_after_the_newest_turn(stage: Stage) -> None:
    await stage.after(SILENCE_S + 1)
    await stage.after(1, heard=True)
    stage.advocate.pleas.clear()
    await stage.after(SILENCE_S + 1)
    assert (await stage.holder()).k == 2  # type: ignore[union-attr]


async def test_a_turn_that_is_taken_away_is_not_insisted_on(stage: Stage) -> None:
    await stage.after(SILENCE_S + 1)
    await stage.store.run(Cancel("r", "job", "agent-n1", 1, "by hand"))
    await stage.after(2)
    assert stage.advocate.pleas == {}
    await stage.after(2)
    assert await stage.holder() is None


async def test_a_stopped_process_is_not_frozen(stage: Stage, pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
    await stage.after(SILENCE_S + 1)
    assert await stage.holder() is None


async def test_only_runs_that_the_driver_saved_can_freeze(stage: Stage) -> None:
    stage.page.stays = {"r": Stay("r", RunState.SAVED, hooked=True)}
    await stage.after(SILENCE_S + 1)
    assert await stage.holder() is None


async def test_a_run_that_only_the_driver_knows_to_be_saved_can_freeze(stage: Stage) -> None:
    stage.page.stays, stage.process.slices = {}, ("s",)
    await stage.after(2, heard=True)
    assert stage.looked == 0
    await stage.after(SILENCE_S + 1)
    assert (stage.looked, await stage.holder()) == (1, None)  # it is busy with something else
    stage.strays = Truth.SAVED
    await stage.after(FIRST_REST_S - 1)
    assert stage.looked == 1
    await stage.after(2)
    assert (await stage.holder()).run == "r"  # type: ignore[union-attr]
    stage.page.stays = {"r": stage.stay}
    await stage.after(2, heard=True)
    assert await stage.holder() is None


async def test_what_is_saved_elsewhere_or_not_on_this_slice_is_not_asked_about(stage: Stage) -> None:
    stage.page.stays, stage.process.slices, stage.strays = {}, ("other",), Truth.SAVED
    await stage.after(SILENCE_S + 1)
    assert (stage.looked, await stage.holder()) == (0, None)


async def test_a_run_that_beats_on_while_it_waits_for_its_gpu(stage: Stage) -> None:
    stage.waits = True
    await stage.after(2, heard=True)
    assert await stage.holder() is None  # perhaps for a moment only
    await stage.after(2, heard=True)
    assert (await stage.holder()).run == "r"  # type: ignore[union-attr]
    await stage.after(2, heard=True)
    assert await stage.holder() is not None
    stage.waits = False
    await stage.after(2, heard=True)
    assert await stage.holder() is None


WAITING = "import threading; lock = threading.Lock(); lock.acquire(); print(1, flush=True); lock.acquire()"
SLEEPING = "import time; print(1, flush=True); time.sleep(600)"


@pytest.mark.parametrize(
    ("code", "library", "waits"),
    [
        (WAITING, "python", True),
        (WAITING, "/libcuda.so", False),
        (SLEEPING, "python", False),
    ],
)
def test_who_waits_for_a_lock_is_seen_from_outside(code: str, library: str, waits: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: Path(f"/proc/{process.pid}/wchan").exists() and asleep(process.pid))
        assert waits_in(process.pid, library) is waits
    finally:
        process.kill()
        process.communicate()
    assert not waits_in(process.pid, library)


def asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("202", "98", "230", "115", "35")
