"""The agent is killed at any moment, and starts again: no state is lost, nobody is let in beside another.

A kill is played by an error that nothing catches, at every place where something lasting is done: before and
after each write of the journal, each copy, each overwriting, each admission, each command to hooks.
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
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from slicelock_agent.backends.base import BackendContext
from slicelock_agent.backends.sim import SimBackend
from slicelock_agent.journal import Journal
from slicelock_agent.result import Result

from slicelock.sim import device as sim_device
from tests.support.rig import FakeHooks, Rig
from tests.support.wait import wait_until_async

EXAMPLES = int(os.environ.get("SLICELOCK_EXAMPLES", "25"))


class Killed(BaseException):
    """Passes every handler, as a kill does."""


class Fuse:
    """Burns down with each lasting effect; at zero the agent is killed there."""

    def __init__(self) -> None:
        self.left = -1
        self.seen: list[str] = []

    def __call__(self, what: str) -> None:
        self.seen.append(what)
        if self.left == 0:
            raise Killed(what)
        self.left -= 1

    def around(self, what: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **facts: Any) -> Any:
            self(f"before {what}")
            result = do(*args, **facts)
            self(f"after {what}")
            return result

        return wrapped


class World:
    """Three runs with state, one slice on two devices, and what must be true."""

    def __init__(self, folder: Path, fuse: Fuse, rng: random.Random) -> None:
        self.fuse, self.rng = fuse, rng
        self.rig = Rig(
            folder, ("sim:d", "sim:e"), hooks=FakeHooks(), backend=self._backend, journal=self._journal
        )
        self.rig.hooks.effect = fuse
        self.content: dict[str, tuple[bytes, bytes]] = {}
        self.dead: set[str] = set()
        self.fence = 0

    def _journal(self, path: Path, boot: str) -> Journal:
        journal = Journal(path, boot)
        journal._put = self.fuse.around("journal", journal._put)  # type: ignore[method-assign]
        return journal

    def _backend(self, context: BackendContext) -> SimBackend:
        backend = SimBackend(context)
        backend._remove = self.fuse.around("remove", backend._remove)  # type: ignore[method-assign]
        return backend

    async def start(self) -> None:
        """The agent's process begins, again after a kill; it may be killed in its start."""
        while True:
            await self.rig.start()
            self.rig.registry.hook_runs.add("b")
            self.rig.registry.dead_runs.update(self.dead)
            await self.rig.idle()
            if not self._was_killed():
                return
            await self.rig.stop()
            self.fuse.left = -1

    async def switch(self, run: str, kill_at: int) -> Result:
        """Redis wants a turn until it has an answer, whatever happens to the agent meanwhile."""
        self.fence += 10
        self.fuse.left = kill_at
        while True:
            try:
                self.rig.want(run, self.fence)
            except Killed:
                await self._again()
                continue
            await wait_until_async(lambda: self.rig.results or self._was_killed(), what=f"{run} is loaded")
            if not self._was_killed():
                self.fuse.left = -1
                await self.rig.idle()
                result = self.rig.results[-1]
                self.rig.results.clear()
                return result
            await self._again()

    def die(self, run: str) -> None:
        """All processes of a run end."""
        self.dead.add(run)
        self.content.pop(run, None)
        self.rig.registry.dead_runs.add(run)
        self.rig.switcher.look()

    def compute(self, run: str) -> None:
        """In its turn a run changes its state."""
        sizes = [len(part) for part in self.content.get(run, ())] or [
            self.rng.choice((0, 500, 40_000)) for _ in "de"
        ]
        new = tuple(self.rng.randbytes(size) for size in sizes)
        for device, data in zip("de", new, strict=True):
            self.rig.write(data, device)
        self.content[run] = (new[0], new[1])

    async def _again(self) -> None:
        await self.rig.stop()
        self.fuse.left = -1
        await self.start()

    def _was_killed(self) -> bool:
        return self.rig.task.done() and not self.rig.task.cancelled()

    # ------------------------------------------------------------ what must be true when a turn has begun

    def check(self, run: str) -> None:
        rig, turn = self.rig, self.rig.admitted
        assert turn is not None
        assert (turn.run, turn.fence) == (run, self.fence)
        for device, data in zip("de", self.content.get(run, (b"", b"")), strict=True):
            assert rig.read(len(data), device) == data, f"{run} finds other bytes on {device}"
            assert rig.used(device) == len(data)
        assert run not in rig.hooks.offloaded
        states = rig.states()
        assert states.pop(run) == "loaded"
        assert set(states.values()) <= {"saved"}
        images = set(rig.images())
        wanted = {
            f"{stay.image}:{device}" for stay in rig.page.stays.values() for device in "de" if stay.image
        }
        assert images == wanted, "an image is missing, or nobody's"
        for device in "de":
            wrong = [what for what in rig.record(device).violations() if not what.startswith("stray")]
            assert not wrong


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    """Every lasting effect of the simulated device burns it down."""
    made = Fuse()
    kind = sim_device.SimDevice
    for name in ("admit", "save_to", "restore_from"):
        monkeypatch.setattr(kind, name, made.around(name, getattr(kind, name)))
    monkeypatch.setattr(sim_device, "_overwrite", made.around("overwrite", sim_device._overwrite))
    return made


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-1, 40), st.booleans()),
    min_size=3,
    max_size=7,
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(plan=[("b", 0, False), ("a", 0, False), ("b", 7, False), ("a", 0, False)], seed=0)
@given(plan=steps, seed=st.integers(0, 1000))
def test_killed_anywhere_the_agent_loses_nothing(
    fuse: Fuse, plan: list[tuple[str, int, bool]], seed: int
) -> None:
    async def play() -> None:
        fuse.left = -1
        world = World(Path(folder), fuse, random.Random(seed))
        await world.start()
        try:
            for run, kill_at, dies in plan:
                if run in world.dead:
                    continue
                result = await world.switch(run, kill_at)
                assert result.outcome == "READY", result.reason
                world.check(run)
                world.compute(run)
                if dies and len(world.dead) < 2:
                    world.die(world.rng.choice(sorted(set("abc") - world.dead)))
                    await world.rig.idle()
        finally:
            await world.rig.stop()

    with TemporaryDirectory() as folder:
        asyncio.run(play())


@pytest.mark.parametrize("run", ["a", "b"])
def test_every_single_point_of_a_switch(fuse: Fuse, run: str) -> None:
    """From one run with state to another with state, killed once at each place in turn. Run b has hooks."""

    async def play(folder: str, kill_at: int) -> int:
        fuse.left = -1
        world = World(Path(folder), fuse, random.Random(kill_at))
        world.rng.choice = lambda sizes: 500  # type: ignore[method-assign]
        await world.start()
        try:
            for name in ("c", run):
                await world.switch(name, -1)
                world.compute(name)
            before = len(fuse.seen)
            assert (await world.switch("c", kill_at)).outcome == "READY"
            world.check("c")
            return len(fuse.seen) - before
        finally:
            await world.rig.stop()

    with TemporaryDirectory() as folder:
        points = asyncio.run(play(folder, -1))
    assert points > 20
    for kill_at in range(points):
        with TemporaryDirectory() as folder:
            asyncio.run(play(folder, kill_at))


def test_images_of_nobody_are_removed_at_a_start(tmp_path: Path) -> None:
    async def play() -> None:
        folder = tmp_path / "sim" / "images" / "p" / "n1" / "s"
        folder.mkdir(parents=True)
        for name in ("a@3:d", ".b@4:d.123"):
            (folder / name).write_bytes(b"left by a kill")
        async with Rig(tmp_path) as rig:
            await rig.idle()
            assert rig.images() == []

    asyncio.run(play())


def test_a_lost_journal_is_made_up_for_by_what_the_devices_say(tmp_path: Path) -> None:
    async def play() -> None:
        async with Rig(tmp_path) as rig:
            await rig.turn("a", 50)
            rig.write(b"state of a")
        for path in (tmp_path / "state").iterdir():
            path.unlink()
        async with Rig(tmp_path) as rig:
            await rig.idle()
            assert rig.page.top == 50
            assert (await rig.turn("b", 40)).what == "refused"
            assert (await rig.turn("b", 60)).outcome == "READY"
            assert (await rig.turn("a", 70)).outcome == "READY"
            assert rig.read(10) == b"state of a"

    asyncio.run(play())
