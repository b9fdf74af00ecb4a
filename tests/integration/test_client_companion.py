"""The companion with a stand-in for Redis: it survives everything, and loses what it must in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import exceptions as redis_errors

from slicelock import errors
from slicelock.codec import Reply, ScriptCall
from slicelock.companion import thread
from slicelock.companion.thread import Companion
from slicelock.protocol import Ledger, Part
from slicelock.settings import Settings
from slicelock.store.failures import explain
from slicelock.wire import Register, RegisterReply, Renew, RenewReply, Yield, YieldReply
from tests.support.flows import part, who
from tests.support.wait import wait_until

TROUBLES = [
    redis_errors.ResponseError("NOREPLICAS Not enough good replicas to write"),
    redis_errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'"),
    redis_errors.BusyLoadingError("Redis is loading the dataset in memory"),
    redis_errors.ResponseError("BUSY Redis is busy running a script"),
    redis_errors.ReadOnlyError("You can't write against a read only replica"),
    redis_errors.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    redis_errors.MasterDownError("Link with MASTER is down"),
    redis_errors.TimeoutError("Timeout reading from socket"),
    redis_errors.ConnectionError("Connection reset by peer"),
    redis_errors.AuthenticationError("invalid username-password pair"),
    redis_errors.ResponseError("ERR something else"),
]


class StandIn:
    """Answers calls as it is told; by default as a Redis in which everything is well."""

    def __init__(self) -> None:
        self.calls: list[ScriptCall] = []
        self.answer: Callable[[ScriptCall], Any] = self.well
        self._lock = threading.Lock()

    def run(self, command: ScriptCall, patience: float | None = None) -> Any:
        with self._lock:
            self.calls.append(command)
            answer = self.answer(command)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def well(self, command: ScriptCall) -> Reply:
        match command:
            case Renew():
                held = [{"state": "held", "wanted": "0"} for _ in command.report["parts"]]
                return RenewReply("OK", parts=held, registered=True, epoch=1)
            case Register():
                return RegisterReply("OK")
            case Yield():
                return YieldReply("YIELDED")
            case _:
                return Reply("OK")

    def beats(self) -> int:
        return sum(isinstance(call, Renew) for call in self.calls)


class World:
    def __init__(self, **facts: Any) -> None:
        self.settings = Settings(
            redis_url="unix:///nowhere/redis.sock",  # type: ignore[arg-type]
            lease=2.0,
            renew=0.02,
            **facts,
        )
        self.ledger, self.store = Ledger(who(lease_ms=2000)), StandIn()
        self.companion = Companion(self.settings, self.ledger, self.store)  # type: ignore[arg-type]
        self.told: list[Part] = []

    def notice(self, lost: Part) -> None:
        self.told.append(lost)

    def hold(self, *, agentless: bool, lease_s: float = 2.0) -> Part:
        """A turn that has begun."""
        held = part("a")
        self.ledger.open(held)
        self.ledger.number(held)
        held.asked = held.spent = True
        held.fences, held.agentless, held.deadline = {"a": 7}, agentless, time.monotonic() + lease_s
        held.owner = lambda: self
        return held

    def after(self, beats: int) -> None:
        """Wait for so many more heartbeats."""
        wanted = self.store.beats() + beats
        wait_until(lambda: self.store.beats() >= wanted)


class Deaf:
    def notice(self, lost: Part) -> None:
        raise ZeroDivisionError


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.companion.stop()


@pytest.mark.parametrize("agentless", [False, True])
def test_scenario_15_one_of_each_error_costs_nothing(world: World, agentless: bool) -> None:
    held = world.hold(agentless=agentless)
    world.companion.ensure_running()
    for trouble in TROUBLES:
        failure = explain(trouble, "here", sent=True)
        once = iter([failure])
        world.store.answer = lambda command, once=once: next(once, None) or world.store.well(command)
        world.after(2)
    assert world.companion.alive
    assert held.loss is None
    assert held.deadline > time.monotonic() + 1.0


def test_errors_are_told_once_and_so_is_their_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.hold(agentless=False)
    world.store.answer = lambda command: errors.StoreUnavailable("away")
    with caplog.at_level("INFO", "slicelock"):
        world.companion.ensure_running()
        world.after(5)
        world.store.answer = world.store.well
        wait_until(lambda: "answers heartbeats again" in caplog.text)
    assert caplog.text.count("was not answered") == 1


def test_a_failure_that_needs_another_remedy_is_told_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.hold(agentless=False)
    world.store.answer = lambda command: errors.StoreUnavailable("away")
    world.companion.ensure_running()
    world.after(3)
    world.store.answer = lambda command: errors.StoreUnavailable("there", advice="Change a setting.")
    world.after(3)
    world.store.answer = lambda command: errors.StoreUnavailable("away")
    world.after(3)
    told = [line for line in caplog.messages if "was not answered" in line]
    assert [line.rpartition(": ")[2] for line in told] == ["away", "there Change a setting."]


@pytest.mark.parametrize("failure", [ValueError("a bug"), MemoryError(), SystemExit(1), KeyboardInterrupt()])
def test_even_a_bug_does_not_end_it(
    world: World, failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    held = world.hold(agentless=True)
    once = iter([failure])
    world.store.answer = lambda command: next(once, None) or world.store.well(command)
    world.companion.ensure_running()
    world.after(3)
    assert world.companion.alive
    assert held.loss is None
    assert "failed and goes on" in caplog.text


def test_scenario_15_errors_that_last_end_a_turn_without_agents_at_its_deadline(world: World) -> None:
    held = world.hold(agentless=True, lease_s=0.4)
    world.store.answer = lambda command: errors.StoreUnavailable("away")
    world.companion.ensure_running()
    wait_until(lambda: world.told == [held])
    assert 0 <= time.monotonic() - held.deadline < 0.2
    assert isinstance(held.loss, errors.Expired)
    assert not world.ledger.open_parts


def test_a_holder_that_cannot_be_told_keeps_no_other_from_hearing(world: World) -> None:
    other = part("b", lane="other")
    other.owner = Deaf
    world.ledger.open(other)
    other.fences, other.agentless, other.deadline = {"b": 7}, True, time.monotonic()
    held = world.hold(agentless=True, lease_s=0.0)
    world.store.answer = lambda command: errors.StoreUnavailable("away")
    world.companion.ensure_running()
    wait_until(lambda: world.told == [held])
    assert isinstance(other.loss, errors.Expired)


def test_errors_that_last_leave_a_turn_with_agents_unconfirmed(world: World) -> None:
    held = world.hold(agentless=False, lease_s=0.2)
    world.store.answer = lambda command: errors.StoreUnavailable("away")
    world.companion.ensure_running()
    wait_until(lambda: held.unconfirmed)
    assert held.loss is None
    world.store.answer = world.store.well
    wait_until(lambda: not held.unconfirmed)
    assert world.told == []


def test_a_kept_call_that_is_refused_holds_no_other_up(world: World) -> None:
    refused, kept = Yield("r1", "main", 4, "0"), Yield("r1", "side", 2, "0")
    world.ledger.keep(refused)
    world.ledger.keep(kept)
    world.store.answer = lambda command: (
        errors.StoreError("a bug") if command == refused else world.store.well(command)
    )
    world.companion.ensure_running()
    wait_until(lambda: list(world.ledger.undelivered) == [refused])


def test_undelivered_calls_of_other_ledgers_are_delivered_too(world: World) -> None:
    evictor = Ledger(who(run="r1.evict-0"))
    evictor.keep(Yield("r1.evict-0", "main", 4, "0"))
    companion = Companion(world.settings, world.ledger, world.store, evictor)  # type: ignore[arg-type]
    try:
        companion.ensure_running()
        wait_until(lambda: not evictor.undelivered)
    finally:
        companion.stop()


def test_undelivered_calls_are_delivered_until_they_are_answered(world: World) -> None:
    kept = Yield("r1", "main", 4, "0")
    world.ledger.keep(kept)
    tries = iter([errors.StoreTimeout(), errors.StoreUnavailable()])
    world.store.answer = lambda command: (
        (next(tries, None) if isinstance(command, Yield) else None) or world.store.well(command)
    )
    world.companion.ensure_running()
    wait_until(lambda: not world.ledger.undelivered)
    assert world.store.calls.count(kept) == 3


def test_a_process_that_redis_forgot_is_registered_again(world: World) -> None:
    world.ledger.registered = True
    world.ledger.learn(RegisterReply("OK"))
    world.ledger.register_call()
    world.store.answer = lambda command: (
        RenewReply("OK", registered=False) if isinstance(command, Renew) else world.store.well(command)
    )
    world.companion.ensure_running()
    wait_until(lambda: any(isinstance(call, Register) for call in world.store.calls))


def test_a_dropped_turn_is_renewed_no_longer_and_yielded(world: World) -> None:
    held = world.hold(agentless=True)
    world.companion.ensure_running()
    world.after(2)
    held.owner = lambda: None
    wait_until(lambda: any(isinstance(call, Yield) for call in world.store.calls))
    world.after(1)
    last = world.store.calls[-1]
    assert isinstance(last, Renew)
    assert last.report["parts"] == []


def test_a_thread_that_has_ended_is_started_again(world: World) -> None:
    world.companion.ensure_running()
    world.after(1)
    world.companion._started = object()
    wait_until(lambda: not world.companion.alive)
    world.companion.ensure_running()
    world.after(2)
    assert world.companion.alive


def test_only_one_thread_goes_on(world: World) -> None:
    """An interrupted start may leave one behind that nobody knows of."""
    world.companion.ensure_running()
    first, world.companion._thread = world.companion._thread, None
    world.companion.ensure_running()
    assert first
    wait_until(lambda: not first.is_alive())
    assert world.companion.alive


def _busy_at_its_end(world: World, work_s: float) -> bool:
    """Whether what its hook thread was doing when it was stopped came to an end."""
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        time.sleep(work_s)
        ended.set()

    world.companion.hooks.call(work)
    assert begun.wait(10)
    world.companion.stop()
    return ended.is_set()


def test_a_hook_under_way_is_waited_for_longer_than_calls(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "STOP_S", 0.01)
    world.companion.ensure_running()
    assert _busy_at_its_end(world, 0.3)


def test_a_hook_that_never_ends_is_not_waited_for_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread, "HOOK_S", 0.01)
    assert not _busy_at_its_end(world, 0.5)
    assert "while a hook is still at work" in caplog.text


async def test_an_event_loop_does_not_wait_for_a_hook_that_may_need_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "STOP_S", 0.01)
    assert not _busy_at_its_end(world, 0.5)
