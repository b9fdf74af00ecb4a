"""Connections, calls and messages on a real server, and what becomes of them when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slicelock import errors, wire
from slicelock.embedded import EmbeddedServer
from slicelock.flow import Call, Flow, Now, Wait
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store import AsyncStore, Store, Subscription
from slicelock.store.connect import Link, socket_of
from slicelock.store.opening import Endpoint, opened
from slicelock.store.server import Server
from tests.support.proxy import Fault, Proxy, script_call
from tests.support.scripts import connect
from tests.support.wait import wait_until

DECLARE = wire.Declare("a", {})
STATUS = wire.Status()


def settings(url: str, pool: str, **facts: Any) -> StoreSettings:
    return StoreSettings(redis_url=url, pool=pool, **facts)  # type: ignore[arg-type]


@pytest.fixture
def proxy(server: EmbeddedServer) -> Iterator[Proxy]:
    with Proxy(server.url) as between:
        yield between


@pytest.fixture
def store(proxy: Proxy, pool: str) -> Iterator[Store]:
    made = Store(settings(proxy.url, pool, store_timeout=0.5))
    yield made
    made.close()


def publish(server: EmbeddedServer, pool: str, text: str) -> int:
    with connect(server.url) as client:
        return client.publish(Keys(pool).run_channel("r1"), text)


class TestCalls:
    def test_answers_are_decoded(self, store: Store) -> None:
        assert store.run(DECLARE).outcome == "OK"
        assert [view["name"] for view in store.run(STATUS).picture["slices"]] == ["a"]

    def test_an_answer_that_makes_no_sense_is_an_error_and_no_end(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(wire.Status, "outcomes", frozenset({"ELSE"}))
            with pytest.raises(errors.StoreError, match="status makes no sense: 'OK' is no outcome"):
                store.run(STATUS)
        assert store.run(STATUS).outcome == "OK"

    def test_a_flushed_script_is_sent_again(self, store: Store, server: EmbeddedServer) -> None:
        store.run(DECLARE)
        with connect(server.url) as admin:
            admin.script_flush()
        assert store.run(DECLARE).outcome == "OK"

    @pytest.mark.parametrize("fault", [Fault.LOSE_CALL, Fault.LOSE_REPLY, Fault.SWALLOW_REPLY])
    def test_a_lost_reply_is_undecided_and_not_repeated(
        self, store: Store, proxy: Proxy, fault: Fault
    ) -> None:
        store.run(DECLARE)
        before = proxy.calls["EVALSHA"]
        proxy.fault(fault, script_call("declare"))
        with pytest.raises(errors.StoreTimeout):
            store.run(DECLARE)
        assert proxy.calls["EVALSHA"] == before + 1
        assert store.run(DECLARE).outcome == "OK"

    @pytest.mark.parametrize("opened_before", [True, False])
    def test_closing_cuts_off_a_call_that_hangs(self, proxy: Proxy, pool: str, opened_before: bool) -> None:
        store, failures = Store(settings(proxy.url, pool, store_timeout=30.0)), list[errors.StoreError]()
        if opened_before:
            store.run(DECLARE)
        proxy.stall()

        def call() -> None:
            try:
                store.run(STATUS)
            except errors.StoreError as failure:
                failures.append(failure)

        thread = threading.Thread(target=call)
        thread.start()
        wait_until(store._lock.locked)
        if not opened_before:
            wait_until(lambda: (link := store._endpoint.under_way) and socket_of(link))
        store.close(0.0)
        thread.join(10.0)
        assert not thread.is_alive()
        assert (len(failures), store._link) == (1, None)
        with pytest.raises(errors.StoreError, match="was closed"):
            store.run(STATUS)

    def test_closing_while_it_is_opened_leaves_nothing_open(
        self, proxy: Proxy, pool: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, made = Store(settings(proxy.url, pool)), list[Link]()

        def opening(endpoint: Endpoint, patience: float) -> tuple[Link, Server]:
            store.close(0.0)
            link, server = opened(endpoint, patience)
            made.append(link)
            return link, server

        monkeypatch.setattr("slicelock.store.sync.opened", opening)
        with pytest.raises(errors.StoreError, match="was closed"):
            store.run(STATUS)
        assert socket_of(made[0]) is None

    def test_a_refused_connection_means_that_nothing_was_done(self, store: Store, proxy: Proxy) -> None:
        proxy.refuse()
        with pytest.raises(errors.StoreUnavailable, match="cannot be reached"):
            store.run(DECLARE)
        proxy.accept()
        assert store.run(DECLARE).outcome == "OK"

    def test_a_connection_that_was_closed_meanwhile_is_made_anew(self, store: Store, proxy: Proxy) -> None:
        store.run(DECLARE)
        proxy.cut()
        with pytest.raises(errors.StoreTimeout):
            for _ in range(2):  # TCP takes the first call, and says only then that nobody is there
                store.run(DECLARE)
        assert store.run(DECLARE).outcome == "OK"

    def test_patience_shortens_a_call(self, store: Store, proxy: Proxy) -> None:
        store.run(DECLARE)
        proxy.fault(Fault.SWALLOW_REPLY)
        begun = time.monotonic()
        with pytest.raises(errors.StoreTimeout):
            store.run(DECLARE, 0.1)
        assert time.monotonic() - begun < 0.4

    def test_patience_ends_before_a_call_that_others_hold_up(self, store: Store, proxy: Proxy) -> None:
        store.run(DECLARE)
        proxy.fault(Fault.SWALLOW_REPLY)
        failures: list[BaseException] = []

        def slow() -> None:
            try:
                store.run(DECLARE)
            except errors.StoreTimeout as failure:
                failures.append(failure)

        thread = threading.Thread(target=slow)
        thread.start()
        wait_until(lambda: proxy.hits == 1)
        with pytest.raises(errors.StoreUnavailable, match="was not made"):
            store.run(DECLARE, 0.05)
        thread.join()
        assert failures

    def test_a_patient_connection_keeps_its_own_timeout(self, store: Store, proxy: Proxy) -> None:
        store.run(DECLARE, 0.3)
        proxy.delay_s = 0.2  # each way: longer than the patience was, shorter than the timeout
        assert store.run(DECLARE).outcome == "OK"

    def test_a_closed_store_says_so(self, proxy: Proxy, pool: str) -> None:
        store = Store(settings(proxy.url, pool))
        store.run(DECLARE)
        store.close()
        with pytest.raises(errors.StoreError, match="was closed"):
            store.run(DECLARE)

    async def test_the_same_for_an_event_loop(self, server: EmbeddedServer, proxy: Proxy, pool: str) -> None:
        store = AsyncStore(settings(proxy.url, pool, store_timeout=0.5))
        assert (await store.run(DECLARE)).outcome == "OK"
        proxy.fault(Fault.SWALLOW_REPLY)
        with pytest.raises(errors.StoreTimeout):
            await store.run(DECLARE)
        with connect(server.url) as admin:
            admin.script_flush()
        assert (await store.run(DECLARE)).outcome == "OK"
        await asyncio.to_thread(proxy.refuse)
        with pytest.raises(errors.StoreError):
            await store.run(DECLARE)
        with pytest.raises(errors.StoreUnavailable, match="cannot be reached"):
            await store.run(DECLARE)
        await asyncio.to_thread(proxy.accept)
        assert (await store.run(DECLARE)).outcome == "OK"
        await store.aclose()
        with pytest.raises(errors.StoreError, match="was closed"):
            await store.run(DECLARE)

    async def test_a_cancelled_call_mixes_up_no_replies(self, proxy: Proxy, pool: str) -> None:
        store = AsyncStore(settings(proxy.url, pool))
        await store.run(DECLARE)
        for _ in range(50):
            task = asyncio.create_task(store.run(STATUS))
            await asyncio.sleep(0.0005)
            task.cancel()
            reply = await store.run(DECLARE)
            assert isinstance(reply, wire.DeclareReply)
            await asyncio.gather(task, return_exceptions=True)
        await store.aclose()


def steps() -> Flow[list[Any]]:
    """A flow that takes every kind of step."""
    begun = yield Now()
    reply = yield Call(STATUS)
    waited = yield Wait(0.02)
    return [reply.outcome, waited, (yield Now()) - begun >= 0.02]


class TestFlows:
    def test_steps_are_taken(self, store: Store) -> None:
        assert store.drive(steps()) == ["OK", None, True]

    async def test_steps_are_taken_in_an_event_loop(self, proxy: Proxy, pool: str) -> None:
        store = AsyncStore(settings(proxy.url, pool))
        assert await store.drive(steps()) == ["OK", None, True]
        await store.aclose()

    def test_failures_are_thrown_into_the_flow(self, store: Store, proxy: Proxy) -> None:
        proxy.refuse()

        def flow() -> Flow[str]:
            try:
                yield Call(STATUS)
            except errors.StoreUnavailable:
                return "told"
            return "not told"

        assert store.drive(flow()) == "told"
        proxy.accept()


class TestMessages:
    def test_are_heard_after_open(self, server: EmbeddedServer, pool: str) -> None:
        subscription = Subscription(settings(server.url, pool), [Keys(pool).run_channel("r1")])
        assert not subscription.is_open
        subscription.open()
        assert publish(server, pool, "held r1/main/3") == 1
        [hint] = subscription.listen(2.0)
        assert (hint.verb, hint.what) == ("held", "r1/main/3")
        assert subscription.listen(0.01) == []
        subscription.close()

    def test_a_wake_ends_the_listening(self, server: EmbeddedServer, pool: str) -> None:
        subscription = Subscription(settings(server.url, pool), ["c"])
        subscription.wake()
        begun = time.monotonic()
        assert subscription.listen(5.0) == []
        assert time.monotonic() - begun < 1.0
        subscription.close()
        subscription.wake()  # after its end it does nothing

    def test_a_silent_server_is_noticed(self, proxy: Proxy, pool: str) -> None:
        subscription = Subscription(settings(proxy.url, pool), ["c"], watchdog_s=0.3)
        subscription.open()
        assert subscription.listen(0.6) == []  # a PING was answered meanwhile
        proxy.stall()
        with pytest.raises(errors.StoreTimeout, match="silent"):
            subscription.listen(5.0)
        assert not subscription.is_open
        proxy.accept()
        subscription.open()
        subscription.close()

    def test_come_from_the_server_that_is_asked(self, own_server: Callable[..., EmbeddedServer]) -> None:
        """An old primary lives on: it keeps the subscription, and answers its PINGs."""
        old, new = own_server(), own_server()
        with Proxy(old.url) as proxy:
            given = settings(proxy.url, "p")
            store = Store(given)
            subscription = Subscription(given, [Keys("p").run_channel("r1")], beside=store, watchdog_s=0.3)
            subscription.open()
            store.run(STATUS)
            assert subscription.listen(0.6) == []
            proxy.move(new.url)
            with contextlib.suppress(errors.StoreTimeout):
                store.run(STATUS)
            store.run(STATUS)
            with pytest.raises(errors.StoreUnavailable, match="another server"):
                subscription.listen(5.0)
            assert not subscription.is_open
            subscription.open()
            assert publish(new, "p", "held r1/main/3") == 1
            [hint] = subscription.listen(2.0)
            assert (hint.verb, hint.what) == ("held", "r1/main/3")
            assert subscription.listen(0.6) == []
            subscription.close()
            store.close()

    def test_a_cut_connection_is_noticed_at_once(self, proxy: Proxy, pool: str) -> None:
        subscription = Subscription(settings(proxy.url, pool), ["c"])
        subscription.open()
        proxy.cut()
        begun = time.monotonic()
        with pytest.raises(errors.StoreTimeout):
            subscription.listen(5.0)
        assert time.monotonic() - begun < 1.0
        subscription.close()
