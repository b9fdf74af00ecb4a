"""The agent is killed at any moment of a driver checkpoint, and starts again: each run ends saved or running.

A kill is played by an error that nothing catches, before and after each write of the journal, each record,
and each call of the driver; the helper processes and the processes of the runs are real.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slicelock_agent.backends.base import BackendContext
from slicelock_agent.backends.cuda import CudaBackend
from slicelock_agent.backends.cuda.helpers import Helpers
from slicelock_agent.journal import Journal

from tests.support.fake_driver import GIB
from tests.support.gpu_rig import SAFE, GpuRig, processes
from tests.support.wait import wait_until_async

EXAMPLES = int(os.environ.get("SLICELOCK_EXAMPLES", "25")) // 3
SIZES = {"a": (30 * GIB, 20 * GIB), "b": (60 * GIB, 5 * GIB)}


class Killed(BaseException):
    """Passes every handler, as a kill does."""


class Fuse:
    """Burns down with each lasting effect; at zero the agent is killed there."""

    def __init__(self) -> None:
        self.left = -1
        self.burnt = 0

    def __call__(self) -> None:
        self.burnt += 1
        if self.left == 0:
            raise Killed
        self.left -= 1

    def around(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **facts: Any) -> Any:
            self()
            result = do(*args, **facts)
            self()
            return result

        return wrapped

    def around_async(self, do: Callable[..., Any]) -> Callable[..., Any]:
        async def wrapped(*args: Any, **facts: Any) -> Any:
            self()
            result = await do(*args, **facts)
            self()
            return result

        return wrapped


class FusedRig(GpuRig):
    """A rig whose agent dies when its fuse has burnt down."""

    fuse: Fuse

    def _cuda(self, context: BackendContext) -> CudaBackend:
        backend = super()._cuda(context)
        records = backend._saved_runs
        records.write = self.fuse.around(records.write)  # type: ignore[method-assign]
        records.remove = self.fuse.around(records.remove)  # type: ignore[method-assign]
        return backend

    def _helpers(self) -> Helpers:
        helpers = super()._helpers()
        helpers.call = self.fuse.around_async(helpers.call)  # type: ignore[method-assign]
        return helpers


class Play:
    """Two runs of two processes each that do not fit together, and an agent that is killed at will."""

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self.fuse, self.pids = Fuse(), {"a": pids[:2], "b": pids[2:]}
        self.rig = FusedRig(folder, journal=self._journal)
        self.rig.fuse = self.fuse
        self.fence, self.begun = 0, set[str]()

    def _journal(self, path: Path, boot: str) -> Journal:
        journal = Journal(path, boot)
        journal._put = self.fuse.around(journal._put)  # type: ignore[method-assign]
        return journal

    async def start(self) -> None:
        """The agent's process begins, again after a kill."""
        await self.rig.start()
        self.rig.registry.pids.update(self.pids)
        await self.rig.idle()

    async def switch(self, run: str, kill_at: int) -> None:
        """Redis wants a turn until it is there, whatever happens to the agent meanwhile."""
        self.fence += 10
        self.fuse.left = kill_at
        while True:
            try:
                self.rig.want(run, self.fence)
            except Killed:
                await self._again()
                continue
            await wait_until_async(lambda: self.rig.results or self._was_killed(), 20, f"{run} is loaded")
            if not self._was_killed():
                break
            await self._again()
        self.fuse.left = -1
        await self.rig.idle()
        assert self.rig.results.pop().outcome == "READY"
        self.rig.results.clear()
        self._compute(run)

    async def _again(self) -> None:
        await self.rig.stop()
        self.fuse.left = -1
        await self.start()

    def _was_killed(self) -> bool:
        return self.rig.task.done() and not self.rig.task.cancelled()

    def _compute(self, run: str) -> None:
        """In its first turn a run takes its memory."""
        if run not in self.begun:
            self.begun.add(run)
            for pid, size in zip(self.pids[run], SIZES[run], strict=True):
                self.rig.world.add(pid, {self.rig.devices[0]: size})

    def check(self, run: str) -> None:
        """The run has the GPU to itself; the other is saved whole; nobody is left locked or lost."""
        other = "b" if run == "a" else "a"
        assert self.rig.world.states(self.pids[run]) == ["running"] * 2
        if other in self.begun:
            assert self.rig.world.states(self.pids[other]) == ["checkpointed"] * 2
        with self.rig.world.open() as world:
            assert not any(proc["poisoned"] for proc in world["procs"].values())
        assert self.rig.admitted is not None
        assert self.rig.admitted.run == run


async def play(kills: list[int]) -> None:
    with TemporaryDirectory() as folder, processes(4, **SAFE) as pids:
        stage = Play(Path(folder), pids)
        await stage.start()
        try:
            for number, kill_at in enumerate(kills):
                run = "ab"[number % 2]
                await stage.switch(run, kill_at)
                stage.check(run)
        finally:
            await stage.rig.stop()


async def effects() -> int:
    """How many lasting effects a switch of two saved runs has."""
    with TemporaryDirectory() as folder, processes(4, **SAFE) as pids:
        stage = Play(Path(folder), pids)
        await stage.start()
        for run in "aba":
            stage.fuse.burnt = 0
            await stage.switch(run, -1)
        await stage.rig.stop()
        return stage.fuse.burnt


PARTS = 6  # of all points, so that several workers share them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_n12_killed_at_every_point_of_a_switch(part: int) -> None:
    points = asyncio.run(effects())
    assert points > 40
    for point in range(part, points, PARTS):
        asyncio.run(play([-1, -1, point, -1]))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(-1, 90), min_size=3, max_size=5), st.randoms())
def test_n12_killed_at_any_points(kills: list[int], rng: random.Random) -> None:
    asyncio.run(play([-1, -1, *kills]))
