"""The modes, decorators, and what users write around turns."""

from __future__ import annotations

import asyncio
import copy
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import slicelock
from slicelock import AsyncSlice, Slice, errors, testing
from slicelock.embedded import EmbeddedServer
from slicelock.errors import TurnError
from slicelock.local_agent import LocalAgent
from slicelock.settings import Settings
from tests.support.sides import ROOT, Side, ThreadSide
from tests.support.wait import wait_until


class TestOff:
    """One script with and without slicelock: no Redis, no settings, nothing happens."""

    @pytest.fixture(autouse=True)
    def _off(self) -> Iterator[None]:
        with testing.off():
            yield

    def test_turns_are_no_ops(self) -> None:
        with Slice("a").turn(phase="train") as turn:
            turn.check()
            assert turn.slices == ("a",)
            assert (turn.fence, turn.run, turn.waited_s, turn.moved, turn.wanted) == (
                0,
                "",
                0.0,
                False,
                False,
            )
            with slicelock.away():
                assert turn.slices == ()
            turn.check()
        assert turn.over

    def test_yields_follow_the_same_rules(self) -> None:
        turn = Slice("a", "b").acquire(timeout=1, wait=False, priority=3)
        turn.yield_("a")
        assert turn.slices == ("b",)
        turn.yield_()
        with pytest.raises(TurnError):
            turn.yield_()

    def test_hooks_are_accepted(self) -> None:
        hook = slicelock.hooks.SelfOffload()
        assert slicelock.register(hook) is hook

    async def test_async_turns_are_no_ops(self) -> None:
        async with AsyncSlice("a").turn() as turn:
            turn.check()
            async with slicelock.away():
                pass
        assert turn.over

    def test_names_are_checked_all_the_same(self) -> None:
        with pytest.raises(errors.ConfigurationError, match="a b"):
            Slice("a b")


def test_observe_prints_what_sharing_would_gain() -> None:
    code = (
        "import slicelock, time\n"
        "s = slicelock.Slice('a')\n"
        "for _ in range(4):\n"
        "    with s.turn(phase='train'): time.sleep(0.05)\n"
        "    with s.turn(phase='generate'):\n"
        "        with slicelock.away(): time.sleep(0.15)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"SLICELOCK_MODE": "observe", "SLICELOCK_JOB": "j1", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "slicelock observed j1 for" in done.stderr
    assert "train" in done.stderr
    assert "4 turns" in done.stderr
    assert "50% saved" in done.stderr
    assert done.stdout == ""


class TestAlwaysEvict:
    @pytest.fixture
    def agented(self, server: EmbeddedServer, pool: str) -> Iterator[None]:
        folder = Path(tempfile.mkdtemp(prefix="slicelock-test-", dir="/dev/shm"))
        env = {
            "SLICELOCK_REDIS_URL": server.url,
            "SLICELOCK_POOL": pool,
            "SLICELOCK_NODE": "n1",
            "SLICELOCK_STATE_DIR": str(folder / "state"),
            "SLICELOCK_SIM_DIR": str(folder / "sim"),
        }
        try:
            with LocalAgent({"a": "sim:d1"}, env):
                yield
        finally:
            shutil.rmtree(folder)

    def test_state_is_moved_every_time(
        self, kind: type[Side], server: EmbeddedServer, pool: str, agented: None
    ) -> None:
        side = kind(server.url, pool)
        log: list[str] = []

        class Recorder:
            def offload(self) -> None:
                log.append("offload")

            def reload(self) -> None:
                log.append("reload")

        facts = {"mode": "always-evict"}
        try:
            slicelock.register(Recorder(), settings=side.settings(**facts))
            for _ in range(3):
                side.give(side.acquire("a", facts=facts))
            wait_until(lambda: log == ["offload", "reload"] * 2 + ["offload"])
            wait_until(lambda: side.requests() == [])
        finally:
            side.close()

    def test_without_agents_it_is_one_more_party(self, side: Side) -> None:
        facts = {"mode": "always-evict"}
        turn = side.acquire("a", facts=facts)
        other = side.ask("a", run="r2")
        wait_until(lambda: side.slice().queued == 1)
        side.give(turn)
        side.give(other.result(5))
        side.give(side.acquire("a", facts=facts))
        wait_until(lambda: side.requests() == [])


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


class TestCopies:
    """Frameworks copy and pickle whatever a trainer has."""

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
    @pytest.mark.parametrize("what", ["slice", "block"])
    def test_what_has_had_turns_can_be_copied(
        self, looker: ThreadSide, mine: Slice, copied: Callable[[Any], Any], what: str
    ) -> None:
        block = mine.turn(phase="train")
        with block:
            pass
        twin = copied(mine).turn(phase="train") if what == "slice" else copied(block)
        with twin as turn:
            assert (looker.holder(), turn.slices, turn.phase) == ("r1", ("a",), "train")

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
    def test_a_turn_cannot(self, mine: Slice, copied: Callable[[Any], Any]) -> None:
        with mine.turn() as turn, pytest.raises(TypeError, match="belongs to whoever took it"):
            copied(turn)


class TestDecorators:
    def test_of_a_function(self, looker: ThreadSide, mine: Slice) -> None:
        @mine.turn(phase="train")
        def train(batch: int, *, scale: int = 1) -> tuple[int, str, str]:
            """Trains."""
            turn = slicelock.current_turn()
            assert turn
            return batch * scale, turn.phase, looker.holder()

        assert train.__doc__ == "Trains."
        assert train(2, scale=3) == (6, "train", "r1")
        assert train(1) == (1, "train", "r1")
        assert looker.holder() == ""
        assert slicelock.current_turn() is None

    def test_of_a_coroutine_function(self, looker: ThreadSide, mine: Slice) -> None:
        @mine.turn(phase="generate")
        async def generate() -> str:
            turn = slicelock.current_turn()
            assert isinstance(turn, slicelock.AsyncTurn)
            return await asyncio.to_thread(looker.holder)

        assert asyncio.run(generate()) == "r1"
        assert looker.holder() == ""

    async def test_of_an_async_slice(self, looker: ThreadSide) -> None:
        @AsyncSlice("a", settings=looker.settings("r1")).turn()
        async def generate() -> str:
            return await asyncio.to_thread(looker.holder)

        assert await generate() == "r1"
        await asyncio.to_thread(looker.close)

    def test_of_a_method(self, looker: ThreadSide, mine: Slice) -> None:
        class Trainer:
            @mine.turn()
            def step(self) -> str:
                return looker.holder()

        assert Trainer().step() == "r1"

    def test_generators_are_refused(self, mine: Slice) -> None:
        def numbers() -> Iterator[int]:
            yield 1

        async def async_numbers() -> AsyncIterator[int]:
            yield 1

        class Numbers:
            def __call__(self) -> Iterator[int]:
                yield 1

        for generator in (numbers, async_numbers, Numbers()):
            with pytest.raises(TypeError, match="is a generator"):
                mine.turn()(generator)
            with pytest.raises(TypeError, match="is a generator"):
                slicelock.away()(generator)

    def test_of_an_object_whose_call_is_a_coroutine_function(self, mine: Slice) -> None:
        class Generate:
            async def __call__(self) -> bool:
                return slicelock.current_turn() is not None

        assert asyncio.run(mine.turn()(Generate())())

    def test_a_plain_function_that_returns_a_coroutine_is_refused(self, mine: Slice) -> None:
        async def generate() -> None: ...

        def wrapper() -> Coroutine[Any, Any, None]:
            return generate()

        for decorated in (mine.turn()(wrapper), mine.turn()(slicelock.away()(wrapper))):
            with pytest.raises(TypeError, match="wrapper returned a coroutine"):
                _ = decorated()

    def test_a_plain_function_is_refused_by_an_async_slice(self, looker: ThreadSide) -> None:
        def plain() -> None: ...

        with pytest.raises(TypeError, match="not a coroutine function"):
            AsyncSlice("a", settings=looker.settings()).turn()(plain)  # type: ignore[arg-type]

    def test_one_block_can_be_used_again(self, looker: ThreadSide, mine: Slice) -> None:
        block = mine.turn()
        fences: list[int] = []
        for _ in range(3):
            with block as turn:
                fences.append(turn.fence)
        assert fences == sorted(set(fences))

    def test_a_recursive_function_is_told_that_it_holds(self, mine: Slice) -> None:
        @mine.turn()
        def recurse() -> None:
            recurse()

        with pytest.raises(errors.Holding):
            recurse()


class TestAway:
    def test_without_a_turn_does_nothing(self) -> None:
        @slicelock.away()
        def grade() -> int:
            return 1

        assert grade() == 1

    def test_of_a_function_inside_a_turn(self, looker: ThreadSide, mine: Slice) -> None:
        seen: list[str] = []

        @slicelock.away(phase="reward")
        def grade(answers: list[str]) -> int:
            seen.append(looker.holder())
            return len(answers)

        with mine.turn() as turn:
            assert grade(["x", "y"]) == 2
            seen.append(looker.holder())
            turn.check()
        assert seen == ["", "r1"]

    def test_of_a_coroutine_function_inside_a_plain_turn(self, looker: ThreadSide, mine: Slice) -> None:
        """As trainers do that run their reward functions with `asyncio.run`."""

        @slicelock.away(phase="reward")
        async def grade() -> str:
            return await asyncio.to_thread(looker.holder)

        with mine.turn() as turn:
            assert asyncio.run(grade()) == ""
            turn.check()
            assert looker.holder() == "r1"

    async def test_of_coroutines_inside_an_async_turn(self, looker: ThreadSide) -> None:
        @slicelock.away()
        async def grade() -> str:
            return await asyncio.to_thread(looker.holder)

        async with AsyncSlice("a", settings=looker.settings("r1")).turn() as turn:
            assert await grade() == ""
            turn.check()
            with pytest.raises(TurnError, match="event loop"), slicelock.away():
                pass
            turn.check()
        await asyncio.to_thread(looker.close)

    def test_inside_away_there_is_no_turn(self, looker: ThreadSide, mine: Slice) -> None:
        with mine.turn() as turn:
            with slicelock.away():
                assert slicelock.current_turn() is None
                with slicelock.away():
                    assert looker.holder() == ""
            assert slicelock.current_turn() is turn

    def test_others_take_their_turn_meanwhile(self, looker: ThreadSide, mine: Slice) -> None:
        other = Slice("a", settings=looker.settings("r2"))
        with mine.turn() as turn:
            before = turn.fence
            with slicelock.away(), other.turn() as theirs:
                assert theirs.fence > before
            assert turn.fence > theirs.fence

    def test_of_a_lost_turn_is_its_loss(self, looker: ThreadSide, mine: Slice) -> None:
        def lose() -> None:
            with mine.turn() as turn:
                looker.revoke(turn)
                wait_until(turn.lost.is_set)
                with slicelock.away():
                    pytest.fail("the body of a lost turn's away must not run")

        with pytest.raises(errors.Revoked):
            lose()
        mine.acquire().yield_()


class TestTesting:
    def test_a_pool_of_ones_own(self) -> None:
        with testing.pool("trainers", job="exp") as made:
            with Slice("trainers").turn() as turn:
                view = made.slice("trainers").holder
                assert view
                assert (view.job, view.id) == ("exp", turn.id)
                made.revoke(turn.id)
                wait_until(turn.lost.is_set)
                with pytest.raises(errors.Revoked):
                    turn.check()
                with pytest.raises(errors.Revoked):
                    turn.yield_()
            with pytest.raises(KeyError):
                made.slice("nonsense")

    def test_the_environment_is_as_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLICELOCK_JOB", "before")
        with testing.pool("a"):
            Slice("a").acquire().yield_()
        assert Settings.load().job == "before"
        assert Settings.load().run is None


def test_facts_of_a_turn_are_readable(mine: Slice) -> None:
    turn: Any = mine.acquire(phase="train")
    assert repr(turn) == "<Turn a (run r1, turn 1 of lane main, phase train): held>"
    assert repr(mine) == "Slice('a')"
    turn.yield_()
    assert "not held" in repr(turn)
