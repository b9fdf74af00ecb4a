"""Calls and messages of an event loop: every reply reaches its callback, and what is lost is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.errors import ConfigurationError, SchemaMismatch, StoreError, StoreTimeout, StoreUnavailable
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store import AsyncStore, AsyncSubscription
from slicelock.store.server import GREETING
from slicelock.wire import Declare, Status, StatusReply
from tests.support.proxy import Fault, Proxy, script_call
from tests.support.scripts import connect
from tests.support.stored import edit
from tests.support.wait import wait_until_async


def settings(url: str, pool: str = "p", timeout: float = 5.0) -> StoreSettings:
    return StoreSettings(redis_url=url, pool=pool, store_timeout=timeout)  # type: ignore[arg-type]


@pytest.fixture
async def store(server: EmbeddedServer, pool: str) -> AsyncIterator[AsyncStore]:
    made = AsyncStore(settings(server.url, pool))
    yield made
    await made.aclose()


async def test_replies_come_in_the_order_of_the_calls(store: AsyncStore, server: EmbeddedServer) -> None:
    with connect(server.url) as client:
        client.script_flush()  # every call meets NOSCRIPT first
    await store.open()
    got: list[Any] = []
    for name in "abc":
        store.send(Declare(name, {}), got.append)
    store.send(Status(), got.append)
    await wait_until_async(lambda: len(got) == 4)
    assert [reply.outcome for reply in got] == ["OK"] * 4
    assert sorted(one["name"] for one in got[3].picture["slices"]) == ["a", "b", "c"]


async def test_one_call_can_be_waited_for(store: AsyncStore) -> None:
    assert (await store.run(Status("none"))).outcome == "NO_SUCH_SLICE"
    assert store.is_open


async def test_without_a_connection_a_call_is_refused_at_once(store: AsyncStore) -> None:
    got: list[Any] = []
    store.send(Status(), got.append)
    assert isinstance(got[0], StoreUnavailable)


async def test_an_error_of_a_script_reaches_its_own_call(
    store: AsyncStore, server: EmbeddedServer, pool: str
) -> None:
    with connect(server.url) as client:
        client.rpush(Keys(pool).slices, "no set")
    got: list[Any] = []
    await store.open()
    store.send(Status(), got.append)
    await wait_until_async(lambda: got)
    assert isinstance(got[0], StoreError)
    assert "WRONGTYPE" in str(got[0])
    assert store.is_open


async def test_another_schema_is_an_error_of_its_own(
    store: AsyncStore, server: EmbeddedServer, pool: str
) -> None:
    with connect(server.url) as client:
        edit(client, Keys(pool).meta, schema="99")
    with pytest.raises(SchemaMismatch):
        await store.run(Declare("a", {}))


async def test_an_answer_that_makes_no_sense_is_an_error_and_no_end(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(*_: object) -> Any:
        raise ValueError("no JSON")

    monkeypatch.setattr(StatusReply, "decode", decode)
    with pytest.raises(StoreError, match="makes no sense: no JSON"):
        await store.run(Status())
    assert store.is_open


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_CALL])
async def test_a_connection_that_breaks_leaves_its_calls_undecided(
    server: EmbeddedServer, pool: str, fault: Fault
) -> None:
    with Proxy(server.url) as proxy:
        store = AsyncStore(settings(proxy.url, pool))
        await store.run(Status())
        proxy.fault(fault, script_call("status"))
        got: list[Any] = []
        for _ in range(3):
            store.send(Status(), got.append)
        await wait_until_async(lambda: len(got) == 3)
        assert all(isinstance(reply, StoreTimeout) for reply in got)
        assert not store.is_open
        assert (await store.run(Status())).outcome == "OK"
        await store.aclose()


async def test_a_server_that_hangs_is_given_up(server: EmbeddedServer, pool: str) -> None:
    with Proxy(server.url) as proxy:
        store = AsyncStore(settings(proxy.url, pool, 0.1))
        await store.run(Status())
        proxy.stall()
        with pytest.raises(StoreTimeout):
            await store.run(Status())
        assert not store.is_open
        proxy.accept()
        await wait_until_async(lambda: reached(store))
        await store.aclose()


async def reached(store: AsyncStore) -> bool:
    try:
        return (await store.run(Status())).outcome == "OK"
    except StoreError:
        return False


async def test_closing_leaves_calls_undecided_and_no_timer(store: AsyncStore) -> None:
    await store.open()
    got: list[Any] = []
    store.send(Status(), got.append)
    await store.aclose()
    assert isinstance(got[0], StoreTimeout)
    await store.aclose()


async def test_several_that_open_it_at_once_share_one_connection(server: EmbeddedServer, pool: str) -> None:
    with Proxy(server.url) as proxy:
        store = AsyncStore(settings(proxy.url, pool))
        replies = await asyncio.gather(*[store.run(Declare(name, {})) for name in "abcd"])
        assert [reply.outcome for reply in replies] == ["OK"] * 4
        assert proxy.calls["INFO"] == len(GREETING)
        await store.open()
        assert proxy.calls["INFO"] == len(GREETING)
        await store.aclose()


async def test_several_that_cannot_open_it_share_one_failure(
    server: EmbeddedServer, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    async def refused(*_: object) -> Any:
        tries.append(1)
        await asyncio.sleep(0)
        raise StoreUnavailable("away")

    store = AsyncStore(settings(server.url, pool))
    with monkeypatch.context() as patch:
        patch.setattr("slicelock.store.aio_link.opened_async", refused)
        for round_ in (1, 2):
            got = await asyncio.gather(*[store.run(Status()) for _ in range(3)], return_exceptions=True)
            assert [str(one) for one in got] == ["away"] * 3
            assert len(tries) == round_
    assert (await store.run(Status())).outcome == "OK"
    await store.aclose()


async def test_an_opening_that_is_cancelled_is_left_to_the_next(store: AsyncStore) -> None:
    first, second = asyncio.create_task(store.open()), asyncio.create_task(store.open())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert store.is_open


async def test_closing_ends_an_opening_under_way(server: EmbeddedServer, pool: str, channel: str) -> None:
    store, hints = (
        AsyncStore(settings(server.url, pool)),
        AsyncSubscription(settings(server.url, pool), [channel], lambda message: None),
    )
    for made in (store, hints):
        opening = asyncio.create_task(made.open())
        await asyncio.sleep(0)
        await made.aclose() if made is store else hints.close()
        with pytest.raises(StoreUnavailable):
            await opening
        assert not made.is_open


@pytest.mark.parametrize("refusal", ["READONLY", "LOADING", "BUSY"])
async def test_several_refusals_in_one_chunk_end_the_connection_once(store: AsyncStore, refusal: str) -> None:
    got: list[Any] = []
    await store.open()
    for _ in range(3):
        store.send(Status(), got.append)
    line = store._link
    assert line is not None
    line.data_received(f"-{refusal} not now\r\n".encode() * 3)
    assert [type(one) for one in got] == [StoreTimeout, StoreTimeout, StoreUnavailable]
    assert not store.is_open
    assert (await store.run(Status())).outcome == "OK"


async def test_an_answer_to_nothing_ends_the_connection(store: AsyncStore) -> None:
    await store.open()
    line = store._link
    assert line is not None
    line.data_received(b"+OK\r\n+OK\r\n")
    assert not store.is_open


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
        await AsyncStore(settings("redis://127.0.0.1:1")).open()


async def test_a_refused_password_is_named(own_server: Callable[..., EmbeddedServer]) -> None:
    url = own_server(options={"requirepass": "right"}).url.replace("unix://", "unix://:wrong@")
    for made in (AsyncStore(settings(url)), AsyncSubscription(settings(url), ["c"], lambda message: None)):
        with pytest.raises(ConfigurationError, match="refuses the user or the password"):
            await made.open()


# ---------------------------------------------------------------- messages


@pytest.fixture
def channel(pool: str) -> str:
    return Keys(pool).node_channel("n1")


async def test_messages_are_heeded_at_once(server: EmbeddedServer, pool: str, channel: str) -> None:
    heeded: list[int] = []
    hints = AsyncSubscription(
        settings(server.url, pool), [channel, channel + "2"], lambda message: heeded.append(1)
    )
    await hints.open()
    assert len(heeded) == 1, "something may have been missed before"
    with connect(server.url) as client:
        for name in (channel, channel + "2", channel + "3"):
            client.publish(name, "grant s")
    await wait_until_async(lambda: len(heeded) == 3)
    hints.close()


async def test_a_lost_subscription_is_made_anew(
    server: EmbeddedServer, pool: str, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock.store.aio_subscribe.REOPEN_S", 0.02)
    heeded: list[int] = []
    with Proxy(server.url) as proxy, connect(server.url) as client:
        hints = AsyncSubscription(
            settings(proxy.url, pool), [channel], lambda message: heeded.append(1), watchdog_s=0.4
        )
        await hints.open()
        task = asyncio.create_task(hints.watch())
        proxy.cut()
        await wait_until_async(lambda: len(heeded) == 2)
        proxy.stall()  # the connection stays, and nothing comes any more
        await asyncio.sleep(0)
        await wait_until_async(lambda: hints._link is None or len(heeded) > 2)
        proxy.accept()
        await wait_until_async(lambda: len(heeded) > 2)
        client.publish(channel, "grant s")
        seen = len(heeded)
        await wait_until_async(lambda: len(heeded) > seen - 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        hints.close()


async def test_messages_come_from_the_server_that_is_asked(
    own_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old primary lives on: it keeps the subscription, and answers its PINGs."""
    old, new = own_server(), own_server()
    monkeypatch.setattr("slicelock.store.aio_subscribe.REOPEN_S", 0.02)
    heeded: list[bytes] = []
    with Proxy(old.url) as proxy, connect(old.url) as there, connect(new.url) as here:
        given = settings(proxy.url)
        store = AsyncStore(given)
        hints = AsyncSubscription(given, ["c"], heeded.append, beside=store, watchdog_s=0.4)
        await hints.open()
        await store.run(Status())
        assert there.publish("c", "heard") == 1
        await wait_until_async(lambda: heeded == [b"", b"heard"])
        proxy.move(new.url)
        await wait_until_async(lambda: not store.is_open)
        await store.run(Status())
        assert there.publish("c", "late") == 1
        await wait_until_async(lambda: heeded == [b"", b"heard", b""], what="one looks, and believes nothing")
        task = asyncio.create_task(hints.watch())
        await wait_until_async(lambda: here.publish("c", "new") == 1)
        await wait_until_async(lambda: b"new" in heeded)  # more may follow: a watchdog this quick barks
        assert b"late" not in heeded
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        hints.close()
        await store.aclose()


async def test_silence_is_no_loss_as_long_as_pings_are_answered(
    server: EmbeddedServer, pool: str, channel: str
) -> None:
    heeded: list[int] = []
    with Proxy(server.url) as proxy:
        hints = AsyncSubscription(
            settings(proxy.url, pool), [channel], lambda message: heeded.append(1), watchdog_s=0.4
        )
        await hints.open()
        task = asyncio.create_task(hints.watch())
        await wait_until_async(lambda: proxy.calls.get("PING", 0) >= 4)
        assert heeded == [1]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        hints.close()
