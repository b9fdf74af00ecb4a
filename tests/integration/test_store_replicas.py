"""A grant of an agentless slice counts once replicas have it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from slicelock import errors
from slicelock.embedded import EmbeddedServer
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store import AsyncStore, Store
from slicelock.wire import Acquire, AcquireReply, Cancel, Declare
from tests.support.scripts import OVERLAY, connect
from tests.support.wait import wait_until

POOL = "p"


def acquire(k: int = 1) -> Acquire:
    return Acquire("r1", "j1", "main", k, "0", 1, ("a",), "b:1:2:3", 15_000, 15_000)


def holder() -> Acquire:
    return Acquire("r2", "j2", "main", 1, "0", 1, ("a",), "b:9:2:3", 15_000, 15_000)


def settings(url: str, **facts: object) -> StoreSettings:
    return StoreSettings.load(redis_url=url, pool=POOL, **({"store_timeout": 0.5} | facts))


def in_step(server: EmbeddedServer) -> None:
    """Return when the replica has confirmed everything up to now."""
    with connect(server.url) as client:
        wait_until(lambda: client.set("x", "1") and client.wait(1, 100) == 1)
        client.delete("x")


@pytest.fixture
def nodes(own_server: Callable[..., EmbeddedServer]) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """A primary and its replica. A test may stop the replica."""
    made = own_server(port=0, options={"repl-diskless-sync-delay": "0"})
    replica = own_server(port=0, options={"replicaof": f"127.0.0.1 {made.port}"})
    yield made, replica
    os.kill(replica.pid, signal.SIGCONT)


@pytest.fixture
def replica(nodes: tuple[EmbeddedServer, EmbeddedServer]) -> EmbeddedServer:
    return nodes[1]


@pytest.fixture
def primary(nodes: tuple[EmbeddedServer, EmbeddedServer]) -> EmbeddedServer:
    """A primary with one replica, which is in step, and the agentless slice a."""
    made = nodes[0]
    in_step(made)  # a replica confirms nothing in the first second after it was copied
    with closing(Store(settings(made.url))) as store:
        store.run(Declare("a", {}))
    return made


def cut(server: EmbeddedServer) -> None:
    """The primary loses its replica, and takes none until the test ends."""
    with connect(server.url) as client:
        client.config_set("requirepass", "other")  # the replica cannot come back
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")


async def grant(kind: str, given: StoreSettings, *before: Callable[[], None], k: int = 1) -> AcquireReply:
    """The answer to question `k` for the turn; `before`: what happens once the connection is open."""
    if kind == "async":
        made = AsyncStore(given)
        try:
            await made.run(Cancel("other", "j1", "main", 1))
            for step in before:
                step()
            return await made.run(acquire(k))
        finally:
            await made.aclose()
    with closing(Store(given)) as store:
        store.run(Cancel("other", "j1", "main", 1))
        for step in before:
            step()
        return store.run(acquire(k))


async def grant_in_time(kind: str, given: StoreSettings, late: str) -> AcquireReply:
    """The answer of the first try at which the replica was in time, which on a busy machine it may not be.
    `late` is what the refusal of the others says: their grant was taken back."""
    for k in range(1, 10):
        try:
            return await grant(kind, given, k=k)
        except errors.NotReplicated as refusal:
            if late not in str(refusal):
                raise
    pytest.fail("the replica was never in time")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_confirmed_grant_counts(kind: str, primary: EmbeddedServer) -> None:
    assert (
        await grant_in_time(kind, settings(primary.url, store_timeout=5.0), "0 of 1 replicas")
    ).outcome == "HELD"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_unconfirmed_grant_does_not(kind: str, primary: EmbeddedServer) -> None:
    with pytest.raises(errors.NotReplicated, match="0 of 1 replicas"):
        await grant(kind, settings(primary.url), lambda: cut(primary))


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_more_replicas_than_there_are_confirm_nothing(kind: str, primary: EmbeddedServer) -> None:
    with pytest.raises(errors.NotReplicated, match="1 of 2 replicas"):
        await grant_in_time(
            kind, settings(primary.url, wait_replicas=2, store_timeout=2.0), "0 of 2 replicas"
        )


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_it_can_be_switched_off(kind: str, primary: EmbeddedServer) -> None:
    off = settings(primary.url, wait_replicas=0)
    assert (await grant(kind, off, lambda: cut(primary))).outcome == "HELD"


async def test_without_replicas_nothing_is_waited_for(own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server()
    with closing(Store(settings(server.url))) as store:
        store.run(Declare("a", {}))
    assert (await grant("sync", settings(server.url))).outcome == "HELD"


def test_a_grant_written_by_another_connection_is_confirmed_too(
    primary: EmbeddedServer, replica: EmbeddedServer
) -> None:
    """`WAIT` counts from the connection's own last write, which may be older than the grant: a question that
    is asked again within the millisecond of the grant writes nothing. (The test's clock stands still.)"""
    with connect(primary.url) as client:
        client.set(f"{Keys(POOL).prefix}test:clock", "1000000")
        in_step(primary)
    careless = Store(settings(primary.url, wait_replicas=0), overlay=OVERLAY)
    careful = Store(settings(primary.url), overlay=OVERLAY)
    with closing(careless) as first, closing(careful) as second:
        assert first.run(holder()).outcome == "HELD"
        assert second.run(acquire()).outcome == "QUEUED"
        in_step(primary)  # else its own last write would not be confirmed either
        os.kill(replica.pid, signal.SIGSTOP)  # it stays connected, and confirms nothing any more
        first.run(Cancel("r2", "j2", "main", 1))
        with pytest.raises(errors.NotReplicated, match="0 of 1 replicas"):
            second.run(acquire())
