"""Situations in which locks of this kind are known to fail, by their numbers in a catalogue of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from slicelock import errors
from slicelock.embedded import EmbeddedServer
from tests.support.proxy import Fault, Proxy, any_call, script_call
from tests.support.scripts import connect
from tests.support.sides import ROOT, LoopSide, Side, ThreadSide
from tests.support.wait import wait_until


class Child:
    """A holder in a process of its own; see `tests.support.child`."""

    def __init__(self, side: Side, run: str, *leases: float) -> None:
        command = [sys.executable, "-m", "tests.support.child", side.url, side.pool, run, *map(str, leases)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def tell(self, word: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n")

    def says(self, text: str) -> str:
        """The first line that begins so, once it is there."""

        def said() -> str:
            return next((line for line in self.lines if line.startswith(text)), "")

        try:
            return wait_until(said, 15.0)
        except AssertionError:
            raise AssertionError(f"the child did not say {text!r}, but {self.lines}") from None

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def children(side: Side) -> Iterator[Any]:
    started: list[Child] = []

    def start(run: str, *leases: float) -> Child:
        started.append(Child(side, run, *leases))
        return started[-1]

    yield start
    for child in started:
        child.close()


def test_scenario_03_live_waiter_keeps_its_place_through_a_long_hold(side: Side) -> None:
    """Ten waiting leases long."""
    short = {"wait_lease": 0.5, "poll": 0.15, "renew": 0.15, "lease": 1.0}
    turn = side.acquire("a", run="r1", facts=short)
    waiting = side.ask("a", run="r2", facts=short)
    wait_until(lambda: side.slice().queued == 1)
    request = side.slice().queue[0].id
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        assert [view.id for view in side.slice().queue] == [request]
        time.sleep(0.05)
    side.give(turn)
    assert waiting.result(5).id == request
    side.give(waiting.result(5))


def test_scenario_04_late_release(side: Side) -> None:
    """The lease has ended and another run has the slice: the late yield changes nothing and wakes nobody."""
    turn = side.acquire("a", run="r1")
    side.revoke(turn)
    second = side.acquire("a", run="r2")
    third = side.ask("a", run="r3")
    wait_until(lambda: side.slice().queued == 1)
    with pytest.raises(errors.LeaseLost):
        side.give(turn)
    assert side.holder() == "r2"
    assert not third.done()
    second.check()
    side.give(second)
    side.give(third.result(5))


def test_scenario_05_paused_holder_learns_that_it_has_lost(side: Side, children: Any) -> None:
    child = children("r1", 1.0)
    fence = int(child.says("held").split()[1])
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice().queued == 1)
    child.signal(signal.SIGSTOP)
    turn = waiting.result(10)
    assert turn.fence > fence
    child.signal(signal.SIGCONT)
    child.tell("check")
    child.says("lost Expired")
    child.says("check Expired")
    assert side.holder() == "r2"
    turn.check()
    side.give(turn)


def test_scenario_05_paused_waiter_costs_others_its_waiting_lease(side: Side, children: Any) -> None:
    """Granted while it is stopped, nobody has heard of its turn: its lease of ten minutes is not its own."""
    turn = side.acquire("a", run="r1")
    child = children("r2", 600.0, 6.0)
    wait_until(lambda: side.slice().queued == 1)
    waiting = side.ask("a", run="r3")
    wait_until(lambda: side.slice().queued == 2)
    child.signal(signal.SIGSTOP)
    side.give(turn)
    assert side.holder() == "r2"
    third = waiting.result(60)
    child.signal(signal.SIGCONT)
    side.give(third)
    assert int(child.says("held").split()[1]) > third.fence
    assert side.holder() == "r2"


def test_scenario_06_blocked_event_loop_keeps_its_lease(server: EmbeddedServer, pool: str) -> None:
    """Three leases long: heartbeats come from a thread of their own."""
    side = LoopSide(server.url, pool)
    try:
        side.declare("a")
        turn = side.acquire("a", facts={"lease": 0.6, "renew": 0.1, "wait_lease": 0.6, "poll": 0.1})

        async def block() -> None:
            time.sleep(2.0)

        side.submit(block()).result(10)
        assert not turn.lost.is_set()
        turn.check()
        assert side.holder() == "r1"
        side.give(turn)
    finally:
        side.close()


def test_scenario_12_release_between_check_and_subscribe(faulty: Side, proxy: Proxy) -> None:
    """The waiter subscribes while the holder yields: it asks after that, so it holds at once."""
    turn = faulty.acquire("a", run="r1")
    proxy.delay_s = 0.1  # the waiter registers, subscribes and asks, each a step that takes a while
    slow = {"poll": 5.0, "lease": 60.0, "wait_lease": 30.0}
    begun = time.monotonic()
    waiting = faulty.ask("a", run="r2", facts=slow)
    wait_until(lambda: proxy.calls.get("SUBSCRIBE", 0) >= 2)
    faulty.give(turn)
    second = waiting.result(5)
    assert time.monotonic() - begun < 4.0
    proxy.delay_s = 0.0
    faulty.give(second)


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_CALL, Fault.DELIVER_LATE])
@pytest.mark.parametrize("call", ["register", "acquire", "renew", "yield", "cancel", "status"])
def test_scenario_13_lost_reply_of_each_call(faulty: Side, proxy: Proxy, call: str, fault: Fault) -> None:
    """Each once: the state is that of a run without faults."""
    first = faulty.acquire("a", run="r1")
    proxy.fault(fault, script_call(call))
    waiting = _until_it_works(faulty, "r2")
    faulty.give(first)
    second = waiting.result(10)
    wait_until(lambda: faulty.slice().holder)
    with pytest.raises(errors.AcquireTimeout):
        faulty.acquire("a", run="r3", timeout=0.2)
    wait_until(lambda: proxy.hits == 1 or call == "cancel")
    proxy.release()
    wait_until(lambda: [view.run for view in faulty.requests()] == ["r2"])
    second.check()
    faulty.give(second)
    wait_until(lambda: faulty.requests() == [])
    faulty.give(faulty.acquire("a", run="r1"))
    wait_until(lambda: faulty.requests() == [])


def _until_it_works(side: Side, run: str) -> Any:
    """Ask; a process that has never reached Redis gives up at its first failure, so it asks again."""
    for _ in range(3):
        waiting = side.ask("a", run=run)
        wait_until(lambda waiting=waiting: waiting.done() or side.slice().queued == 1)
        if not waiting.done():
            return waiting
        assert isinstance(waiting.exception(), errors.StoreError)
    raise AssertionError("three failures from one fault")


def test_scenario_15_heartbeats_survive_what_the_server_refuses(
    kind: type[Side], own_server: Any, pool: str, caplog: pytest.LogCaptureFixture
) -> None:
    """READONLY, NOREPLICAS, OOM, BUSY and silence, one after the other: the lease is kept."""
    server = own_server(options={"enable-debug-command": "yes", "busy-reply-threshold": "20"})
    side = kind(server.url, pool)
    with connect(server.url) as admin:
        try:
            side.declare("a")
            turn = side.acquire("a", facts={"lease": 4.0, "renew": 0.2, "store_timeout": 0.3})
            for name, begin, end in _troubles(admin, server):
                before = len(caplog.messages)
                begin()
                wait_until(
                    lambda n=before: any("not answered" in line for line in caplog.messages[n:]), what=name
                )
                with caplog.at_level("INFO", "slicelock"):  # before the end, which a heartbeat may see first
                    end()
                    wait_until(lambda n=before: "answers heartbeats again" in caplog.text, what=name)
                turn.check()
                caplog.clear()
            assert side.party().companion.alive
            assert side.holder() == "r1"
            side.give(turn)
        finally:
            side.close()


def _troubles(admin: redis.Redis, server: EmbeddedServer) -> Iterator[tuple[str, Any, Any]]:
    def config(name: str, value: str) -> Any:
        return lambda: admin.config_set(name, value)

    def busy() -> None:
        threading.Thread(target=_spin, args=(server.url,)).start()

    yield "READONLY", lambda: admin.replicaof("127.0.0.1", "1"), lambda: admin.replicaof("NO", "ONE")
    yield "NOREPLICAS", config("min-replicas-to-write", "1"), config("min-replicas-to-write", "0")
    yield "BUSY", busy, lambda: wait_until(lambda: _kill_script(server.url))
    yield "silence", lambda: os.kill(server.pid, signal.SIGSTOP), lambda: os.kill(server.pid, signal.SIGCONT)


def _spin(url: str) -> None:
    with connect(url) as other:
        try:
            other.eval("while true do end", 0)
        except redis.RedisError:
            return


def _kill_script(url: str) -> bool:
    with connect(url) as other:
        try:
            other.script_kill()
        except redis.RedisError as error:
            return "NOTBUSY" in str(error)
        return True


def test_scenario_16_release_races_heartbeat(faulty: Side, proxy: Proxy) -> None:
    """A heartbeat under way while the turn is yielded does not bring it back."""
    for _ in range(20):
        turn = faulty.acquire("a", facts={"lease": 1.0, "renew": 0.1, "wait_lease": 1.0, "poll": 0.1})
        proxy.delay_s = 0.005
        faulty.party(lease=1.0, renew=0.1, wait_lease=1.0, poll=0.1).companion.hurry()
        faulty.give(turn)
        proxy.delay_s = 0.0
        assert faulty.holder() == ""
    wait_until(lambda: faulty.requests() == [])


def test_scenario_16_a_heartbeat_delivered_after_the_yield_changes_nothing(
    faulty: Side, proxy: Proxy
) -> None:
    turn = faulty.acquire("a")
    proxy.fault(Fault.DELIVER_LATE, script_call("renew"))
    faulty.party().companion.hurry()
    wait_until(lambda: proxy.hits == 1)
    faulty.give(turn)
    proxy.release()
    assert faulty.holder() == ""
    assert faulty.requests() == []


@pytest.mark.parametrize("days", [-1, 1])
def test_scenario_17_client_clock_a_day_off(side: Side, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """No outcome depends on a client's wall clock."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + days * 86_400)
    first = side.acquire("a", run="r1")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice().queued == 1)
    with pytest.raises(errors.AcquireTimeout):
        side.acquire("a", run="r3", timeout=0.3)
    first.check()
    side.give(first)
    second = waiting.result(5)
    assert 0 < second.waited_s < 10
    assert second.fence > first.fence
    second.check()
    side.give(second)


def test_scenario_18_scripts_flushed_before_every_command(side: Side, server: EmbeddedServer) -> None:
    with connect(server.url) as admin:
        for _ in range(20):
            admin.script_flush()
            turn = side.acquire("a", "b")
            admin.script_flush()
            side.give(turn, "a")
            admin.script_flush()
            side.party().companion.hurry()
            side.give(turn)
    assert side.requests() == []


def test_scenario_18_server_restarted_with_an_empty_cache(
    kind: type[Side], own_server: Any, pool: str
) -> None:
    server = own_server(appendonly=True, options={"appendfsync": "always"})
    side = kind(server.url, pool)
    try:
        side.declare("a")
        turn = side.acquire("a")
        server.stop()
        server.start()
        wait_until(lambda: not side.slice().settling, timeout=15.0)
        turn.check()
        side.give(turn)
        side.give(side.acquire("a"))
    finally:
        side.close()


def test_messages_lost_on_the_way_cost_one_poll(faulty: Side, proxy: Proxy) -> None:
    proxy.drop_messages = True
    turn = faulty.acquire("a", run="r1")
    waiting = faulty.ask("a", run="r2")
    wait_until(lambda: faulty.slice().queued == 1)
    begun = time.monotonic()
    faulty.give(turn)
    faulty.give(waiting.result(5))
    assert time.monotonic() - begun < 2.0


def test_a_subscription_that_goes_deaf_is_made_anew(faulty: Side, proxy: Proxy) -> None:
    turn = faulty.acquire("a", run="r1")
    before = proxy.calls["SUBSCRIBE"]
    proxy.cut()
    wait_until(lambda: proxy.calls["SUBSCRIBE"] > before)
    turn.check()
    faulty.give(turn)


def test_any_call_may_fail_in_a_row(faulty: Side, proxy: Proxy) -> None:
    """Every tenth call is lost, one way or the other, for a while."""
    side = faulty
    side.give(side.acquire("a", run="r1"))
    for number in range(60):
        proxy.fault(list(Fault)[number % 2], any_call, skip=9)
    fences: list[int] = []
    for _ in range(60):
        turn = side.acquire("a", run="r1")
        fences.append(turn.fence)
        side.give(turn)
    assert fences == sorted(set(fences))
    proxy.clear()
    wait_until(lambda: side.requests() == [])


def test_three_connections_at_most(server: EmbeddedServer, pool: str) -> None:
    """Threads, an event loop and the companion together."""
    threads, loop = ThreadSide(server.url, pool), LoopSide(server.url, pool)
    try:
        threads.declare("a", "b")
        first, second = threads.acquire("a"), loop.acquire("b", lane="other")
        with connect(server.url) as admin:
            names = [entry["name"] for entry in admin.client_list()]
        assert names.count("slicelock-job-r1") + names.count("slicelock-hints") == 3
        threads.give(first)
        loop.give(second)
    finally:
        threads.close()
        loop.close()
