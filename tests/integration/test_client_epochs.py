"""Redis stopped for several leases and started again, with and without its last writes; with agents."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slicelock import errors
from slicelock.embedded import EmbeddedServer
from slicelock.keys import Keys
from slicelock.local_agent import LocalAgent
from tests.support.proxy import Proxy
from tests.support.scripts import connect
from tests.support.sides import Side, ThreadSide
from tests.support.wait import wait_until

LEASE_S = 1.0
SHORT = {"lease": LEASE_S, "renew": 0.2, "wait_lease": LEASE_S, "poll": 0.2, "store_timeout": 0.5}


class Stage:
    """A server that can forget, an agent with the slices a and b on it, and clients."""

    def __init__(self, kind: type[Side], server: EmbeddedServer, pool: str, folder: Path) -> None:
        self.server, self._folder = server, folder
        self.side = kind(server.url, pool)
        self.side.patience = {**self.side.patience, **SHORT}  # type: ignore[misc]
        env = {
            "SLICELOCK_REDIS_URL": server.url,
            "SLICELOCK_POOL": pool,
            "SLICELOCK_NODE": "n1",
            "SLICELOCK_STATE_DIR": str(folder / "state"),
            "SLICELOCK_SIM_DIR": str(folder / "sim"),
            "SLICELOCK_BEAT": "0.2",
            "SLICELOCK_STORE_TIMEOUT": "0.5",
        }
        self.agent = LocalAgent({"a": "sim:d1", "b": "sim:d2"}, env)

    def remember(self) -> Path:
        """What the server would know if everything from now on were lost."""
        self.server.stop()
        copy = Path(tempfile.mkdtemp(dir=self._folder))
        shutil.copytree(self.server.directory / "appendonlydir", copy / "aof")
        self.server.start()
        self.settled()
        return copy

    def forget(self, memory: Path) -> None:
        """Start again from what was remembered."""
        self.server.stop()
        shutil.rmtree(self.server.directory / "appendonlydir")
        shutil.copytree(memory / "aof", self.server.directory / "appendonlydir")
        self.server.start()

    def away(self, leases: float) -> None:
        """Stop the server for so many leases."""
        self.server.stop()
        until = time.monotonic() + leases * LEASE_S
        wait_until(lambda: time.monotonic() >= until, timeout=leases * LEASE_S + 1)

    def settled(self) -> None:
        wait_until(lambda: not any(one.settling for one in self.side.picture().slices), timeout=15.0)

    def close(self) -> None:
        self.side.close()
        self.agent.stop()
        self.agent.close()


@pytest.fixture
def stage(kind: type[Side], own_server: Callable[..., EmbeddedServer]) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="slicelock-test-", dir="/dev/shm"))
    server = own_server(appendonly=True, options={"appendfsync": "always"})
    made = Stage(kind, server, "epochs", folder)
    try:
        made.agent.start()
        yield made
    finally:
        print(made.agent.log())  # pytest shows it with a failure
        made.close()
        shutil.rmtree(folder)


def test_a_turn_goes_on_through_an_outage_of_several_leases(stage: Stage) -> None:
    turn = stage.side.acquire("a", "b")
    stage.away(3)
    assert turn.unconfirmed
    assert not turn.lost.is_set()
    turn.check()
    stage.server.start()
    wait_until(lambda: not turn.unconfirmed, timeout=15.0)
    stage.settled()
    turn.check()
    assert stage.side.holder("a") == "r1"
    stage.side.give(turn)
    stage.side.give(stage.side.acquire("a", run="r2"))


def test_a_turn_that_redis_forgot_is_brought_back(stage: Stage) -> None:
    memory = stage.remember()
    turn = stage.side.acquire("a", "b")
    stage.away(2)
    stage.forget(memory)
    waiting = stage.side.ask("a", run="r2")
    wait_until(lambda: stage.side.holder("a") == "r1" and stage.side.slice().queued == 1, timeout=15.0)
    turn.check()
    assert not waiting.done()
    stage.side.give(turn)
    second = waiting.result(15)
    assert second.fence > turn.fence
    stage.side.give(second)


def test_a_partial_yield_that_redis_forgot_stays_yielded(stage: Stage) -> None:
    turn = stage.side.acquire("a", "b")
    memory = stage.remember()
    stage.side.give(turn, "a")
    stage.forget(memory)
    second = stage.side.acquire("a", run="r2")
    turn.check()
    assert turn.slices == ("b",)
    assert (stage.side.holder("a"), stage.side.holder("b")) == ("r2", "r1")
    stage.side.give(turn)
    stage.side.give(second)


def test_a_yield_that_redis_forgot_is_told_again(stage: Stage) -> None:
    turn = stage.side.acquire("a")
    memory = stage.remember()
    turn.check()
    stage.side.give(turn)
    stage.forget(memory)
    stage.side.give(stage.side.acquire("a", run="r2"))
    wait_until(lambda: stage.side.requests() == [])


def test_a_yield_while_redis_is_away_is_delivered_later(stage: Stage) -> None:
    turn = stage.side.acquire("a")
    waiting = stage.side.ask("a", run="r2")
    wait_until(lambda: stage.side.slice().queued == 1)
    stage.server.stop()
    stage.side.give(turn)
    stage.server.start()
    stage.side.give(waiting.result(15))
    wait_until(lambda: stage.side.requests() == [])


def test_a_yield_while_redis_is_away_reaches_one_that_forgot_the_turn(stage: Stage) -> None:
    memory = stage.remember()
    turn = stage.side.acquire("a")
    stage.server.stop()
    stage.side.give(turn)
    stage.forget(memory)
    stage.side.give(stage.side.acquire("a", run="r2"))
    wait_until(lambda: stage.side.requests() == [])


def test_a_request_that_redis_forgot_is_made_again(stage: Stage) -> None:
    turn = stage.side.acquire("a")
    memory = stage.remember()
    waiting = stage.side.ask("a", run="r2")
    wait_until(lambda: stage.side.slice().queued == 1)
    stage.forget(memory)
    wait_until(lambda: stage.side.slice().queued == 1, timeout=15.0)
    turn.check()
    stage.side.give(turn)
    stage.side.give(waiting.result(15))


def test_a_request_is_made_again_once_an_empty_redis_knows_its_slice(stage: Stage) -> None:
    turn = stage.side.acquire("a")
    waiting = stage.side.ask("a", run="r2")
    wait_until(lambda: stage.side.slice().queued == 1)
    stage.server.stop()
    shutil.rmtree(stage.server.directory / "appendonlydir")
    stage.server.start()
    wait_until(
        lambda: [(one.name, one.queued) for one in stage.side.picture().slices][:1] == [("a", 1)], 20.0
    )
    turn.check()
    stage.side.give(turn)
    stage.side.give(waiting.result(15))


def test_a_cancel_while_redis_is_away_is_delivered_later(stage: Stage) -> None:
    turn = stage.side.acquire("a")
    waiting = stage.side.ask("a", run="r2", timeout=1.5)
    wait_until(lambda: stage.side.slice().queued == 1)
    stage.away(2)
    with pytest.raises(errors.AcquireTimeout):
        waiting.result(10)
    stage.server.start()
    wait_until(lambda: [view.run for view in stage.side.requests()] == ["r1"], timeout=15.0)
    turn.check()
    stage.side.give(turn)


def test_acquire_waits_for_a_redis_that_is_away(stage: Stage) -> None:
    stage.side.give(stage.side.acquire("a"))
    stage.server.stop()
    waiting = stage.side.ask("a")
    stage.server.start()
    stage.side.give(waiting.result(15))


def test_without_agents_the_local_deadline_ends_a_turn(
    kind: type[Side], own_server: Callable[..., EmbeddedServer]
) -> None:
    server = own_server()
    side = kind(server.url, "epochs")
    told: list[Any] = []
    try:
        side.declare("a")
        turn = side.acquire("a", facts=SHORT, on_lost=told.append)
        begun = time.monotonic()
        server.stop()
        wait_until(turn.lost.is_set, timeout=5.0)
        assert LEASE_S - 0.3 < time.monotonic() - begun < LEASE_S + 0.3
        with pytest.raises(errors.Expired, match="not reached in time"):
            turn.check()
        wait_until(lambda: told == [turn])
        server.start()
    finally:
        side.close()


def test_without_agents_a_loss_says_that_redis_refused_to_renew(
    kind: type[Side], own_server: Callable[..., EmbeddedServer]
) -> None:
    server = own_server()
    with contextlib.closing(kind(server.url, "epochs")) as side, connect(server.url) as operator:
        side.declare("a")
        turn = side.acquire("a", facts=SHORT)
        operator.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
        try:
            wait_until(turn.lost.is_set, timeout=5.0)
        finally:
            operator.execute_command("ACL", "SETUSER", "default", "+@all")
        with pytest.raises(errors.Expired, match=r"Redis did not renew it: .* the rights"):
            turn.check()


STOPPED = """
import os, signal, subprocess, sys, time, slicelock
from slicelock import errors
turn = slicelock.Slice("a").acquire()
subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
os.kill(os.getpid(), signal.SIGSTOP)
turn.lost.wait(10)
try:
    turn.check()
except errors.LeaseLost as loss:
    print(loss)
"""


def test_without_agents_a_process_that_was_stopped_does_not_blame_redis(
    own_server: Callable[..., EmbeddedServer],
) -> None:
    server = own_server()
    with contextlib.closing(ThreadSide(server.url, "epochs")) as side:
        side.declare("a")
        env = {"SLICELOCK_REDIS_URL": server.url, "SLICELOCK_POOL": "epochs", "SLICELOCK_JOB": "j"}
        env |= {f"SLICELOCK_{name.upper()}": str(value) for name, value in SHORT.items()}
        job = subprocess.run(
            [sys.executable, "-c", STOPPED],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "The lease ran out: this process did not come to renew it in time" in job.stdout, job.stderr


def test_messages_come_from_the_new_primary_though_the_old_one_lives_on(
    kind: type[Side], own_server: Callable[..., EmbeddedServer]
) -> None:
    """The old one keeps the subscription, and answers its PINGs."""
    old, new = own_server(), own_server()
    with (
        Proxy(old.url) as proxy,
        connect(old.url) as there,
        connect(new.url) as here,
        contextlib.closing(kind(proxy.url, "p")) as side,
    ):
        channel = Keys("p").run_channel("r1")
        side.declare("a")
        side.give(side.acquire("a"))
        assert there.pubsub_numsub(channel) == [(channel.encode(), 1)]
        proxy.move(new.url)
        with contextlib.suppress(errors.StoreError):
            side.picture()  # the connection was cut
        side.declare("a")
        wait_until(lambda: here.pubsub_numsub(channel) == [(channel.encode(), 1)])
        assert there.pubsub_numsub(channel) == [(channel.encode(), 0)]
        side.give(side.acquire("a"))
