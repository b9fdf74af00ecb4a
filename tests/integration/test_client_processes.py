"""Forks, ends of processes, and what children inherit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

import slicelock
from slicelock import LeaseLost, Slice, Turn, errors
from slicelock.companion import close_all
from slicelock.companion.party import FAREWELL_S
from slicelock.companion.thread import STOP_S
from slicelock.embedded import EmbeddedServer
from tests.support.proxy import Proxy
from tests.support.sides import ROOT, Side, ThreadSide, environment
from tests.support.wait import wait_until


def run_python(side: Side, code: str, *, run: str = "r2", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program with this pool's settings."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(side, run=run, **environ),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=ROOT,
    )


def in_child(work: object) -> str:
    """Fork, call `work` in the child, and return what it says; the child runs its exit handlers."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = work()  # type: ignore[operator]
            os.write(writer, str(said).encode())
            close_all()  # as the interpreter's exit would
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


class TestFork:
    def test_a_child_owns_nothing_of_its_parent(self, looker: ThreadSide) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()

        def work() -> str:
            try:
                turn.check()
            except LeaseLost as loss:
                return str(loss)
            return "fine"

        assert "belongs to the parent process" in in_child(work)
        assert looker.holder() == "r1"
        turn.check()
        turn.yield_()

    def test_a_childs_exit_and_yield_release_nothing(self, looker: ThreadSide) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()
        assert in_child(turn.yield_) == "0"
        assert looker.holder() == "r1"
        turn.check()
        turn.yield_()

    def test_a_block_that_a_child_leaves_does_nothing(self, looker: ThreadSide) -> None:
        with Slice("a", settings=looker.settings("r1")).turn() as turn:
            block = Slice("a", settings=looker.settings("r1")).turn()
            block._entered.append((turn, None))
            in_child(lambda: block.__exit__(None, None, None))
            assert looker.holder() == "r1"
            turn.check()

    def test_a_child_that_is_born_while_away_does_not_come_back(self, looker: ThreadSide) -> None:
        with Slice("a", settings=looker.settings("r1")).turn() as turn:
            away = slicelock.away()
            away.__enter__()

            def work() -> str:
                away.__exit__(None, None, None)
                names = {thread.name for thread in threading.enumerate()}
                return f"{turn.over} {turn.slices} {'slicelock-companion' in names}"

            assert in_child(work) == "True () False"
            assert looker.requests() == []
            away.__exit__(None, None, None)
            turn.check()

    @pytest.mark.parametrize("way", ["leave", "come_back", "acquire"])
    def test_a_child_takes_and_leaves_no_turn_of_its_parents(self, looker: ThreadSide, way: str) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()
        if way == "come_back":
            turn.leave()

        def work() -> str:
            try:
                getattr(turn, way)()
            except errors.TurnError as error:
                return str(error)
            return "done"

        before = [view.id for view in looker.requests()]
        assert "by the parent process" in in_child(work)
        assert [view.id for view in looker.requests()] == before
        if way == "come_back":
            turn.come_back()
        turn.yield_()

    def test_the_parent_still_gets_its_messages(self, looker: ThreadSide) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()
        in_child(lambda: None)
        looker.revoke(turn)
        wait_until(turn.lost.is_set)

    def test_a_child_takes_turns_of_its_own(self, looker: ThreadSide) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()

        def work() -> str:
            with Slice("b", settings=looker.settings("r1", member="child", lane="child")).turn() as mine:
                return f"{mine.slices[0]} {looker_sees(looker)}"

        assert in_child(work) == "b r1 r1"
        turn.check()
        assert looker.holder("b") == ""
        turn.yield_()

    def test_a_child_that_is_the_same_member_is_refused(self, looker: ThreadSide) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()

        def work() -> str:
            try:
                Slice("b", settings=looker.settings("r1")).acquire(timeout=0.5)
            except errors.NotGranted as error:
                return f"{type(error).__name__}: {error}"
            return "granted"

        assert "is this member" in in_child(work)
        turn.check()
        turn.yield_()
        Slice("a", settings=looker.settings("r1")).acquire().yield_()

    def test_multiprocessing_children_leave_the_parents_turn_alone(self, looker: ThreadSide) -> None:
        with Slice("a", settings=looker.settings("r1")).turn() as turn:
            child = multiprocessing.get_context("fork").Process(target=close_all)
            child.start()
            child.join()
            turn.check()
            assert looker.holder() == "r1"


def looker_sees(side: Side) -> str:
    return f"{side.holder('a')} {side.holder('b')}"


class TestEnd:
    def test_the_interpreters_exit_yields_what_is_held(self, looker: ThreadSide) -> None:
        done = run_python(
            looker, "import slicelock; slicelock.Slice('a').acquire(); turn = slicelock.current_turn()"
        )
        assert (done.returncode, done.stdout) == (0, "")
        assert looker.requests() == []

    def test_an_exception_yields_what_is_held(self, looker: ThreadSide) -> None:
        done = run_python(looker, "import slicelock; turn = slicelock.Slice('a').acquire(); 1 / 0")
        assert done.returncode == 1
        assert "ZeroDivisionError" in done.stderr
        assert looker.requests() == []

    def test_an_interrupted_wait_is_withdrawn(self, looker: ThreadSide) -> None:
        turn = Slice("a", settings=looker.settings("r1")).acquire()
        child = subprocess.Popen(
            [sys.executable, "-c", "import slicelock; slicelock.Slice('a').acquire()"],
            env=environment(looker),
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        wait_until(lambda: looker.slice().queued == 1, timeout=20)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=10)
        assert "KeyboardInterrupt" in said
        assert child.returncode != 0
        assert looker.slice().queued == 0
        turn.yield_()

    def test_a_holder_that_is_killed_loses_its_turn_with_its_lease(self, looker: ThreadSide) -> None:
        code = (
            "import os, signal, slicelock; turn = slicelock.Slice('a').acquire();"
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        done = run_python(looker, code, LEASE="1", RENEW="0.3", WAIT_LEASE="1")
        assert done.returncode == -signal.SIGKILL
        turn = Slice("a", settings=looker.settings("r1")).acquire(timeout=10)
        assert isinstance(turn, Turn)
        turn.yield_()

    def test_an_exit_with_a_hung_redis_is_quick(
        self, server: EmbeddedServer, pool: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The companion's call under way is cut off, and the companion itself ends without a word."""
        with Proxy(server.url) as proxy:
            side = ThreadSide(proxy.url, pool)
            side.patience = side.patience | {"store_timeout": 30.0}
            party = side.party("r2")
            party.start()
            proxy.stall()
            party.companion.hurry()
            wait_until(party.store._lock.locked)
            begun = time.monotonic()
            party.close()
            assert time.monotonic() - begun < FAREWELL_S + STOP_S + 1.0
            assert not party.companion.alive
            assert not party.companion.listening
            assert "failed and goes on" not in caplog.text
            side.close()

    def test_an_exit_without_redis_is_quick(self, own_server: Callable[..., EmbeddedServer]) -> None:
        server = own_server()
        side = ThreadSide(server.url, "exits")
        side.declare("a")
        child = subprocess.Popen(
            [sys.executable, "-c", "import slicelock; turn = slicelock.Slice('a').acquire(); input('held')"],
            env=environment(side),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        wait_until(lambda: side.holder() == "r2", timeout=20)
        server.stop()
        begun = time.monotonic()
        _, said = child.communicate("\n", timeout=20)
        assert time.monotonic() - begun < FAREWELL_S + 2
        assert child.returncode == 0
        assert "Traceback" not in said
        side.close()


class TestRun:
    def test_children_inherit_a_run_that_was_named_here(self, looker: ThreadSide) -> None:
        code = (
            "import os, subprocess, sys, slicelock; turn = slicelock.Slice('a').acquire();"
            "print(turn.run, os.environ['SLICELOCK_RUN']); turn.yield_();"
            "child = 'import slicelock; turn = slicelock.Slice(\"a\").acquire(); print(turn.id)';"
            "sys.stdout.flush(); slicelock.testing.close_all(); subprocess.run([sys.executable, '-c', child])"
        )
        done = run_python(looker, code, run="")
        mine, inherited, childs = done.stdout.split()
        assert mine == inherited
        assert childs == f"{mine}/main/2"

    def test_two_launches_of_one_job_are_two_runs(self, looker: ThreadSide) -> None:
        code = "import slicelock; turn = slicelock.Slice('a').acquire(); print(turn.run)"
        first, second = (run_python(looker, code, run="", JOB="twin").stdout for _ in range(2))
        assert first.startswith("twin-")
        assert first != second
