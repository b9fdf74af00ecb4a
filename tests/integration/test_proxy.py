"""The proxy does to a call what it was told, and nothing to any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from slicelock.embedded import EmbeddedServer
from tests.support.proxy import Fault, Proxy
from tests.support.scripts import connect
from tests.support.wait import wait_until

INCR = [b"INCRBY", b"n", b"1"]  # what redis-py sends for incr("n")


def is_incr(words: list[bytes]) -> bool:
    return words == INCR


@pytest.fixture
def proxy(server: EmbeddedServer, make_pool: object) -> Iterator[Proxy]:
    with Proxy(server.url) as made:
        yield made


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def through(proxy: Proxy, client: redis.Redis, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with connect(proxy.url, protocol=request.param) as made:
        made.ping()
        yield made
    client.delete("n")


def test_passes_everything_on(through: redis.Redis) -> None:
    assert [through.incr("n") for _ in range(3)] == [1, 2, 3]
    assert through.eval("return {1, {'a', false}, redis.status_reply('OK')}", 0) == [1, [b"a", None], b"OK"]
    with through.pipeline() as pipe:
        assert pipe.set("n", "x" * 200_000).get("n").execute()[1] == b"x" * 200_000


@pytest.mark.parametrize(("fault", "carried_out"), [(Fault.LOSE_CALL, 0), (Fault.LOSE_REPLY, 1)])
def test_loses_one_call_or_its_reply(
    proxy: Proxy, through: redis.Redis, client: redis.Redis, fault: Fault, carried_out: int
) -> None:
    proxy.fault(fault, is_incr)
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    assert int(client.get("n") or 0) == carried_out
    assert through.incr("n") == carried_out + 1


def test_the_right_one_of_several_calls(proxy: Proxy, through: redis.Redis) -> None:
    proxy.fault(Fault.LOSE_REPLY, is_incr, skip=1)
    assert through.incr("n") == 1
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    assert through.incr("n") == 3


def test_swallows_a_reply(proxy: Proxy, client: redis.Redis) -> None:
    proxy.fault(Fault.SWALLOW_REPLY, is_incr)
    with connect(proxy.url, timeout=0.2) as impatient, pytest.raises(redis.TimeoutError):
        impatient.incr("n")
    assert client.getdel("n") == b"1"


def test_delivers_late(proxy: Proxy, through: redis.Redis, client: redis.Redis) -> None:
    proxy.fault(Fault.DELIVER_LATE, is_incr)
    with pytest.raises(redis.ConnectionError):
        through.incr("n")
    assert through.set("n", 10)
    proxy.release()
    assert client.get("n") == b"11"


def test_refuses_and_accepts_again(proxy: Proxy, through: redis.Redis) -> None:
    proxy.refuse()
    with pytest.raises(redis.ConnectionError):
        through.ping()
    proxy.accept()
    assert through.ping()


def test_cuts_and_welcomes_again(proxy: Proxy, through: redis.Redis) -> None:
    with through.client() as one:
        assert one.ping()
        proxy.cut()
        with pytest.raises(redis.ConnectionError):
            one.ping()
        assert one.ping()


def test_stalls_and_goes_on(proxy: Proxy, client: redis.Redis) -> None:
    with connect(proxy.url, timeout=0.1) as impatient:
        proxy.stall()
        with pytest.raises(redis.TimeoutError):
            impatient.incr("n")
        proxy.accept()
        wait_until(lambda: client.get("n") is None or client.delete("n"))
        assert impatient.ping()


def test_drops_messages_but_not_confirmations(
    proxy: Proxy, through: redis.Redis, client: redis.Redis
) -> None:
    with through.pubsub() as listener:
        listener.subscribe("news")
        assert wait_until(listener.get_message)["type"] == "subscribe"
        client.publish("news", "one")
        assert wait_until(listener.get_message)["data"] == b"one"
        proxy.drop_messages = True
        client.publish("news", "two")
        listener.ping()
        assert wait_until(listener.get_message)["type"] == "pong"
        proxy.drop_messages = False
        client.publish("news", "three")
        assert wait_until(listener.get_message)["data"] == b"three"
