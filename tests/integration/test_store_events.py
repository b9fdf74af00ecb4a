"""Reading the stream of events, and what becomes of it when Redis fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from slicelock import errors
from slicelock.embedded import EmbeddedServer
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store import EventReader
from tests.support.proxy import Proxy
from tests.support.scripts import connect
from tests.support.wait import wait_until
from tests.support.world import World

PASSWORD = "viewer"


def settings(url: str, pool: str) -> StoreSettings:
    return StoreSettings(redis_url=url, pool=pool, store_timeout=0.5)  # type: ignore[arg-type]


class Stream:
    """The stream of a pool, written by hand. `say` gives an event the number n as its reason."""

    def __init__(self, client: redis.Redis, pool: str) -> None:
        self.client, self.key = client, Keys(pool).events

    def say(self, *numbers: int, at: int | None = None) -> None:
        for n in numbers:
            self.client.xadd(
                self.key, {"type": "clock", "t": n, "reason": n}, id="*" if at is None else f"{at + n}-0"
            )

    def cut(self, after: int, base: int) -> None:
        """Lose the events above a number, as a failover may."""
        kept = self.client.xrange(self.key, max=f"{base + after}-0")
        self.client.delete(self.key)
        for id_, facts in kept:
            self.client.xadd(self.key, facts, id=id_)


@pytest.fixture
def stream(client: redis.Redis, pool: str) -> Stream:
    return Stream(client, pool)


@pytest.fixture
def reader(server: EmbeddedServer, pool: str) -> Iterator[EventReader]:
    with EventReader(settings(server.url, pool), since_ms=0) as made:
        yield made


def numbers(reader: EventReader, seconds: float = 0.0) -> list[str]:
    """The numbers read, with a gap as its type."""
    return [one.text("reason") if one.type != "gap" else "gap" for one in reader.read(seconds)]


def test_everything_in_order_from_a_time_on(stream: Stream, server: EmbeddedServer, pool: str) -> None:
    stream.say(*range(2500), at=1_000_000)
    with EventReader(settings(server.url, pool), since_ms=1_000_100) as reader:
        assert [one.t_ms for one in reader.read_all()] == list(range(100, 2500))
        assert reader.read() == []


def test_only_what_comes(stream: Stream, server: EmbeddedServer, pool: str) -> None:
    stream.say(1)
    with EventReader(settings(server.url, pool)) as reader:
        assert reader.read() == []
        stream.say(2)
        assert numbers(reader) == ["2"]


def test_it_waits_for_the_next_event(stream: Stream, reader: EventReader) -> None:
    assert reader.read() == []
    teller = threading.Timer(0.1, stream.say, [7])
    teller.start()
    begun = time.monotonic()
    assert numbers(reader, 10.0) == ["7"]
    assert time.monotonic() - begun < 5.0
    teller.join()


def test_it_waits_no_longer_than_it_may(reader: EventReader) -> None:
    assert reader.read(0.05) == []


def test_what_the_scripts_write(world: World, server: EmbeddedServer, pool: str) -> None:
    world.declare("a")
    world.member("r1").ask("a", phase="train")
    with EventReader(settings(server.url, pool), since_ms=0) as reader:
        held = [one for one in reader.read_all() if one.type == "held"]
    assert [(one.request, one.slices, one.text("phase")) for one in held] == [("r1/main/1", ("a",), "train")]


def test_the_clock_is_redis_own(reader: EventReader, client: redis.Redis) -> None:
    assert abs(reader.now_ms() - int(client.time()[0]) * 1000) < 5_000  # type: ignore[index]


# ---------------------------------------------------------------- rights


def test_a_viewer_may_read(client: redis.Redis, server: EmbeddedServer, pool: str, stream: Stream) -> None:
    rules = ["+@connection", "+xread", "+xrange", "+xrevrange"]
    client.execute_command(
        "ACL", "SETUSER", "viewer", "reset", "on", f">{PASSWORD}", f"~{Keys(pool).prefix}*", *rules
    )
    stream.say(1)
    found = StoreSettings(redis_url=_as_viewer(server.url), pool=pool)  # type: ignore[arg-type]
    try:
        with EventReader(found, since_ms=0) as reader:
            assert numbers(reader) == ["1"]
            assert abs(reader.now_ms() - time.time() * 1000) < 5_000  # its own clock: it may not ask Redis'
        client.execute_command("ACL", "SETUSER", "viewer", "-xread")
        with EventReader(found) as reader, pytest.raises(errors.ConfigurationError, match="rights"):
            reader.read()
    finally:
        client.execute_command("ACL", "DELUSER", "viewer")


def _as_viewer(url: str) -> str:
    scheme, rest = url.split("://", 1)
    return f"{scheme}://viewer:{PASSWORD}@{rest}"


# ---------------------------------------------------------------- failures


def test_a_lost_connection_is_told_and_the_next_read_goes_on(
    stream: Stream, server: EmbeddedServer, pool: str
) -> None:
    with Proxy(server.url) as proxy, EventReader(settings(proxy.url, pool), since_ms=0) as reader:
        stream.say(1)
        assert numbers(reader) == ["1"]
        proxy.refuse()
        with pytest.raises(errors.StoreUnavailable):
            wait_until(lambda: reader.read(0.05))
        stream.say(2)
        proxy.accept()
        assert numbers(reader) == ["2"]


def test_a_silent_connection_is_noticed(server: EmbeddedServer, pool: str) -> None:
    with Proxy(server.url) as proxy, EventReader(settings(proxy.url, pool), since_ms=0) as reader:
        reader.read()
        proxy.stall()
        with pytest.raises(errors.StoreUnavailable):
            reader.read(0.1)


def test_a_slow_reader_is_told_what_was_trimmed(stream: Stream, reader: EventReader) -> None:
    stream.say(1, 2)
    assert numbers(reader) == ["1", "2"]
    stream.say(3, 4)
    stream.client.xtrim(stream.key, maxlen=1, approximate=False)
    reader.close()
    [gap, event] = reader.read()
    assert (gap.type, event.text("reason")) == ("gap", "4")
    assert "removed from the stream" in gap.text("reason")
    assert reader.read() == []


BASE = 2_000_000_000_000


def test_events_that_a_failover_has_lost(stream: Stream, reader: EventReader) -> None:
    stream.say(1, 2, 3, 4, at=BASE)
    assert numbers(reader) == ["1", "2", "3", "4"]
    stream.cut(after=2, base=BASE)
    reader.close()
    assert numbers(reader) == ["gap"]
    assert numbers(reader) == []
    stream.say(9, at=BASE)
    assert numbers(reader) == ["9"]


def test_a_new_server_whose_clock_is_behind(stream: Stream, reader: EventReader) -> None:
    stream.say(1, 5, 9, at=BASE)
    assert numbers(reader) == ["1", "5", "9"]
    stream.cut(after=1, base=BASE)
    reader.close()
    stream.say(6, 8, at=BASE)
    assert numbers(reader) == ["gap", "6", "8"]
    assert numbers(reader) == []


def test_a_stream_that_began_anew(stream: Stream, reader: EventReader) -> None:
    stream.say(1, 2, at=BASE)
    assert numbers(reader) == ["1", "2"]
    stream.client.delete(stream.key)
    assert numbers(reader) == []  # after silence it looks
    assert numbers(reader) == ["gap"]
    assert numbers(reader) == []
    stream.say(1, at=BASE - 1_000)
    assert numbers(reader) == ["1"]


def test_a_restart_without_persistence(own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server()
    with connect(server.url) as client, EventReader(settings(server.url, "p"), since_ms=0) as reader:
        Stream(client, "p").say(1)
        assert numbers(reader) == ["1"]
        server.stop()
        with pytest.raises(errors.StoreUnavailable):
            reader.read(0.1)
        server.start()
        Stream(client, "p").say(2)
        assert numbers(reader) == ["gap", "2"]


def test_reading_only_what_comes_notices_a_loss_too(
    stream: Stream, server: EmbeddedServer, pool: str
) -> None:
    stream.say(1, at=BASE)
    with EventReader(settings(server.url, pool)) as reader:
        assert numbers(reader) == []
        stream.client.delete(stream.key)
        assert numbers(reader) == ["gap"]


@pytest.mark.parametrize("answer", [1, [1], [None], [[b"events", [[None, None]]]]])
def test_an_answer_that_makes_no_sense_is_told(
    stream: Stream, reader: EventReader, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    stream.say(1)
    with monkeypatch.context() as patch:
        patch.setattr("slicelock.store.events._answer", lambda *_: answer)
        for ask in (reader.read, reader.now_ms):
            with pytest.raises(errors.StoreError, match=r"makes no sense: .*leads to Redis itself"):
                ask()
    assert numbers(reader) == ["1"]
