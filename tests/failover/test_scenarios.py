"""What failovers do to others' Redis locks, by the number of the scenario; and planned ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from slicelock import errors
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store import AsyncSubscription, Store, Subscription
from slicelock.store.connect import Dialer
from slicelock.store.sentinel import Route
from slicelock.wire import Acquire, AcquireReply, Cancel, Declare
from tests.support.sentinels import Deployment, Node, away, fail_over
from tests.support.sides import Side
from tests.support.wait import wait_until, wait_until_async

pytestmark = pytest.mark.failover

WATCHDOG_S = 1.0


def acquire(run: str, k: int = 1) -> Acquire:
    return Acquire(run, f"job-{run}", "main", k, "0", 1, ("a",), f"b:1:2:{run}", 1_000, 1_000)


# ---------------------------------------------------------------- grants


def test_scenario_07_failover_loses_the_grant(side: Side, deployment: Deployment) -> None:
    """Without agents: what no replica has is not told as granted, and later there is a fresh grant."""
    side.patience = {**side.patience, "lease": 1.0, "wait_lease": 1.0, "renew": 0.3}  # type: ignore[misc]
    side.declare("a")
    first = side.acquire("a", run="r1")
    side.give(first)
    deployment.cut_replicas()
    with pytest.raises(errors.AcquireTimeout, match="0 of 1 replicas"):
        side.acquire("a", run="r1", timeout=1.5)
    fail_over(deployment, Node.kill)
    second = side.acquire("a", run="r2")
    assert second.fence > first.fence
    side.give(second)


@pytest.mark.usefixtures("agent")
def test_scenario_08_token_after_rollback_with_an_agent(side: Side, deployment: Deployment) -> None:
    """The lost grant is running: its agent has admitted it. It goes on, and the next fence is higher."""
    side.give(side.acquire("a", run="r0"))
    deployment.cut_replicas()
    turn = side.acquire("a", run="r1")
    fail_over(deployment, Node.kill)
    waiting = side.ask("a", run="r2")
    wait_until(away(lambda: side.holder("a") == "r1" and not turn.unconfirmed), 10.0)
    turn.check()
    assert not waiting.done()
    side.give(turn)
    second = waiting.result(10)
    assert second.fence > turn.fence
    side.give(second)


def test_scenario_08_token_after_rollback_without_agents(deployment: Deployment, pool: str) -> None:
    """Even a lost grant that was told (no WAIT) is below every later one."""
    settings = StoreSettings.load(redis_url=deployment.url, pool=pool, wait_replicas=0)
    with closing(Store(settings)) as store:
        begin_pool(store)
        wait_until(lambda: deployment.primary.ask("WAIT", "2", "100") == 2)
        deployment.cut_replicas()
        lost = store.run(acquire("r1"))
        assert lost.outcome == "HELD"
        fail_over(deployment, Node.kill)
        later = wait_until(away(lambda: _held(store.run(acquire("r2")))), 10.0)
    assert later.fences["a"] > lost.fences["a"]


def begin_pool(store: Store) -> None:
    """A pool that has been in use, so that replicas know how long its leases are. (Else an agentless slice
    settles for as long as a lease is by default.)"""
    store.run(Declare("a", {}))
    store.run(acquire("r0"))
    store.run(Cancel("r0", "job-r0", "main", 1))


def _held(reply: AcquireReply) -> AcquireReply | None:
    return reply if reply.outcome == "HELD" else None


def test_scenario_09_old_primary_wakes(deployment: Deployment, pool: str) -> None:
    """A question that waits in the socket of a hung primary is answered by it after the failover: HELD, as
    it knows no better. It is not told to anybody."""
    settings = StoreSettings.load(redis_url=deployment.url, pool=pool, store_timeout=30)
    careless = StoreSettings.load(redis_url=deployment.url, pool=pool, store_timeout=30, wait_replicas=0)
    with closing(Store(settings)) as careful, closing(Store(careless)) as naive:
        begin_pool(naive)
        careful.run(Declare("a", {}))
        wait_until(lambda: deployment.primary.ask("WAIT", "2", "100") == 2)
        old = deployment.primary
        old.freeze()
        answers: dict[str, Any] = {}

        def ask(name: str, store: Store) -> None:
            try:
                answers[name] = store.run(acquire("r1"))
            except errors.StoreError as failure:
                answers[name] = failure

        threads = [
            threading.Thread(target=ask, args=each) for each in (("careful", careful), ("naive", naive))
        ]
        for thread in threads:
            thread.start()
        deployment.wait_failover(old, time.monotonic())
        with closing(Store(careless)) as other:
            second = wait_until(away(lambda: _held(other.run(acquire("r2")))), 10.0)
            old.wake()
            for thread in threads:
                thread.join(30)
            assert isinstance(answers["careful"], errors.StoreError), answers
            wait_until(lambda: old.role == "slave", 20.0, "the old primary follows the new one")
            again = other.run(acquire("r2"))
            assert (again.outcome, again.fences) == ("HELD", second.fences)
    # This is what happens without WAIT; a server that was demoted before it answered spares us.
    naive_answer = answers["naive"]
    assert isinstance(naive_answer, errors.StoreError) or naive_answer.outcome == "HELD"


# ---------------------------------------------------------------- subscriptions


FAULTS = {"hung": Node.freeze, "killed": Node.kill}


@pytest.fixture(params=sorted(FAULTS))
def fault(request: pytest.FixtureRequest) -> Callable[[Node], None]:
    """Scenario 10: the primary hangs. Scenario 11: it is killed."""
    return FAULTS[request.param]


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every question to the Sentinels and every connection to a server that is tried, in order."""
    seen: list[str] = []
    primary = Route.primary

    def asked(self: Route, patience: float) -> tuple[str, int]:
        seen.append("ask")
        return primary(self, patience)

    monkeypatch.setattr(Route, "primary", asked)
    for name in ("link", "async_link"):
        build = getattr(Dialer, name)

        def dialled(self: Dialer, address: Any = None, build: Any = build) -> Any:
            if self.name != "sentinel":
                seen.append(f"dial {address}")
            return build(self, address)

        monkeypatch.setattr(Dialer, name, dialled)
    return seen


def asked_before_each_dial(dials: list[str]) -> bool:
    return all(
        before == "ask"
        for before, after in zip(["", *dials], dials, strict=False)
        if after.startswith("dial")
    )


def test_scenario_10_and_11_a_subscription_of_a_thread(
    deployment: Deployment, pool: str, fault: Callable[[Node], None], dials: list[str]
) -> None:
    """By its own watchdog: nobody watches the Sentinels here."""
    channel = Keys(pool).run_channel("r1")
    settings = StoreSettings.load(redis_url=deployment.url, pool=pool, store_timeout=1.0)
    with closing(Subscription(settings, [channel], watchdog_s=WATCHDOG_S)) as heard:
        heard.open()

        def message() -> bool:
            try:
                if not heard.is_open:
                    heard.open()
                return bool(heard.listen(0.05))
            except errors.StoreError:
                return False

        served(deployment, fault, channel, message)
    assert asked_before_each_dial(dials), dials


def served(
    deployment: Deployment, fault: Callable[[Node], None], channel: str, message: Callable[[], bool]
) -> None:
    """After a failover, what is published on the new primary comes in time."""
    old, since = deployment.primary, time.monotonic()
    fault(old)
    new = deployment.wait_failover(old, since)
    with new.client() as client:
        wait_until(
            lambda: (client.publish(channel, "held r1/main/1") and message()) or message(), 3 + WATCHDOG_S
        )


async def test_scenario_10_and_11_the_subscription_of_an_agent(
    deployment: Deployment, pool: str, fault: Callable[[Node], None], dials: list[str]
) -> None:
    channel = Keys(pool).node_channel("n1")
    settings = StoreSettings.load(redis_url=deployment.url, pool=pool, store_timeout=1.0)
    messages: list[bytes] = []
    heard = AsyncSubscription(settings, [channel], messages.append, watchdog_s=WATCHDOG_S)
    await heard.open()
    task = asyncio.create_task(heard.watch())
    await served_async(deployment, fault, channel, lambda: b"held r1/main/1" in messages)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    heard.close()
    assert asked_before_each_dial(dials), dials


async def served_async(
    deployment: Deployment, fault: Callable[[Node], None], channel: str, came: Callable[[], bool]
) -> None:
    old, since = deployment.primary, time.monotonic()
    fault(old)
    new = await asyncio.to_thread(deployment.wait_failover, old, since)
    with new.client() as client:
        await wait_until_async(
            lambda: client.publish(channel, "held r1/main/1") >= 0 and came(), 3 + WATCHDOG_S
        )


# ---------------------------------------------------------------- other ways to change places


@pytest.mark.usefixtures("agent")
def test_a_planned_failover_costs_a_running_turn_nothing(side: Side, deployment: Deployment) -> None:
    """SENTINEL FAILOVER: the old primary lives and answers READONLY."""
    turn = side.acquire("a")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice("a").queued == 1)
    old, since = deployment.primary, time.monotonic()
    with deployment.sentinels[0].client() as client:
        wait_until(lambda: _accepted(client), 10.0)
    deployment.wait_failover(old, since)
    wait_until(away(lambda: side.holder("a") == "r1" and not turn.unconfirmed), 10.0)
    turn.check()
    side.give(turn)
    side.give(waiting.result(10))


def _accepted(client: Any) -> bool:
    try:
        return client.execute_command("SENTINEL", "FAILOVER", "mymaster") == b"OK"
    except Exception as error:
        assert "NOGOODSLAVE" in str(error) or "INPROG" in str(error)
        return False


@pytest.mark.usefixtures("agent")
def test_a_yield_while_redis_is_away_reaches_the_new_primary(side: Side, deployment: Deployment) -> None:
    turn = side.acquire("a")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice("a").queued == 1)
    old, since = deployment.primary, time.monotonic()
    old.kill()
    side.give(turn)
    deployment.wait_failover(old, since)
    second = waiting.result(10)
    assert second.fence > turn.fence
    side.give(second)
    wait_until(away(lambda: side.requests() == []))


@pytest.mark.usefixtures("agent")
def test_one_sentinel_may_be_away(side: Side, deployment: Deployment) -> None:
    """Whoever listens to it goes on with another one: a hung primary is left only if somebody says so."""
    turn = side.acquire("a")
    deployment.sentinels[0].kill()
    fail_over(deployment, Node.freeze)
    wait_until(away(lambda: side.holder("a") == "r1" and not turn.unconfirmed), 10.0)
    turn.check()
    side.give(turn)
    side.give(side.acquire("a", run="r2"))


@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("harm", [Node.kill, Node.freeze], ids=["killed", "hung"])
def test_a_job_that_starts_in_a_failover(
    side: Side, deployment: Deployment, harm: Callable[[Node], None]
) -> None:
    """It has never reached Redis, and the Sentinels know where it is: no error, but a little patience."""
    harm(deployment.primary)
    turn = side.acquire("a", facts={"store_timeout": 10.0})
    side.give(turn)


def test_one_sentinel_alone_is_not_believed(deployment: Deployment, pool: str) -> None:
    for sentinel in deployment.sentinels[1:]:
        sentinel.kill()
    settings = StoreSettings.load(redis_url=deployment.url, pool=pool)
    with closing(Store(settings)) as store, pytest.raises(errors.StoreUnavailable, match="1 of 3 answered"):
        store.run(Declare("a", {}))


def test_a_name_that_the_sentinels_do_not_know(deployment: Deployment, pool: str) -> None:
    settings = StoreSettings.load(redis_url=deployment.url.replace("mymaster", "other"), pool=pool)
    with (
        closing(Store(settings)) as store,
        pytest.raises(errors.ConfigurationError, match=r"'other'.*SENTINEL"),
    ):
        store.run(Declare("a", {}))
