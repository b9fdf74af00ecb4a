"""Servers that answer, and still cannot be used, are named at once, by each kind of connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from slicelock import errors
from slicelock.embedded import EmbeddedServer, free_port
from slicelock.settings import StoreSettings
from slicelock.store import (
    AsyncStore,
    AsyncSubscription,
    Store,
    Subscription,
)
from slicelock.wire import Status
from tests.support.scripts import connect
from tests.support.wait import wait_until

Refused = Callable[[StoreSettings], Awaitable[None]]


async def _store(settings: StoreSettings) -> None:
    with closing(Store(settings)) as store:
        store.run(Status())


async def _subscription(settings: StoreSettings) -> None:
    with closing(Subscription(settings, ["c"])) as subscription:
        subscription.open()


async def _async_store(settings: StoreSettings) -> None:
    await AsyncStore(settings).run(Status())


async def _async_subscription(settings: StoreSettings) -> None:
    await AsyncSubscription(settings, ["c"], lambda message: None).open()


WAYS = [_store, _subscription, _async_store, _async_subscription]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__.strip("_"))
def way(request: pytest.FixtureRequest) -> Refused:
    return request.param


def settings(url: str) -> StoreSettings:
    return StoreSettings.load(redis_url=url, pool="p", store_timeout=2)


async def test_scenario_20_a_cluster_is_refused_by_name(
    way: Refused, own_server: Callable[..., EmbeddedServer]
) -> None:
    """A cluster of one would do, until its replica is promoted: nothing here follows a cluster's moves."""
    server = own_server(port=0, options={"cluster-enabled": "yes", "cluster-port": str(free_port())})
    with pytest.raises(errors.ConfigurationError, match=r"Redis Cluster.*Sentinel for failover"):
        await way(settings(server.url))


async def test_scenario_19_a_server_that_evicts_is_refused(
    way: Refused, own_server: Callable[..., EmbeddedServer]
) -> None:
    server = own_server(options={"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"})
    with pytest.raises(errors.ConfigurationError, match=r"volatile-lru.*noeviction"):
        await way(settings(server.url))


async def test_a_database_that_the_server_lacks(
    way: Refused, own_server: Callable[..., EmbeddedServer]
) -> None:
    server = own_server()
    with pytest.raises(errors.ConfigurationError, match=r"no such database: .*out of range"):
        await way(settings(f"{server.url}?db=99"))


async def test_a_replica(way: Refused, own_server: Callable[..., EmbeddedServer]) -> None:
    primary = own_server(port=0)
    replica = own_server(options={"replicaof": f"127.0.0.1 {primary.port}"})
    with pytest.raises(errors.StoreUnavailable, match=r"is a replica.*Sentinels"):
        await way(settings(replica.url))


@pytest.fixture
def web_server() -> Iterator[int]:
    """The port of a server that speaks HTTP, without a log."""
    kind = type("Handler", (BaseHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("scheme", "says"), [("redis", "is not Redis, or speaks TLS"), ("rediss", "does not speak TLS")]
)
async def test_something_that_is_not_redis(way: Refused, web_server: int, scheme: str, says: str) -> None:
    with pytest.raises(errors.StoreUnavailable, match=f"{says}.*host and port"):
        await way(settings(f"{scheme}://127.0.0.1:{web_server}/0"))


def test_a_policy_that_changes_later_stops_nothing(own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server()
    with closing(Store(settings(server.url))) as store, connect(server.url) as admin:
        store.run(Status())
        admin.config_set("maxmemory", "100mb")
        admin.config_set("maxmemory-policy", "allkeys-lru")
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: _answers(store))


def _answers(store: Store) -> bool:
    try:
        return store.run(Status()).outcome == "OK"
    except errors.StoreTimeout:
        return False
