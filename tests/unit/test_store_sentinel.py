"""What several Sentinels say, put together."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

import pytest

from slicelock import errors
from slicelock.settings import StoreSettings
from slicelock.store.address import Address, target_of
from slicelock.store.opening import Endpoint
from slicelock.store.sentinel import Route, address_in, route_to

OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6379)
Said = Address | None | Exception
AWAY = errors.StoreUnavailable("The Sentinel cannot be asked: refused.")
REFUSED = errors.ConfigurationError("The Sentinel refuses the password.")


class Told(Route):
    """Its Sentinels say what the test wants."""

    def __init__(self, *said: Said) -> None:
        hosts = [f"h{number}:26379" for number in range(len(said))]
        super().__init__(target_of(StoreSettings.load(redis_url=f"redis+sentinel://{','.join(hosts)}/m")))
        self.said: Mapping[Address, Said] = {(f"h{number}", 26379): one for number, one in enumerate(said)}
        self.asked: list[Address] = []

    def _ask(self, sentinel: Address, patience: float) -> Address | None:
        self.asked.append(sentinel)
        said = self.said[sentinel]
        if isinstance(said, Exception):
            raise said
        return said


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ((NEW, NEW, NEW), NEW),
        ((NEW, OLD, NEW), NEW),
        ((AWAY, NEW, NEW), NEW),
        ((None, NEW, NEW), NEW),
        ((REFUSED, NEW, NEW), NEW),
        ((NEW, AWAY), NEW),
        ((NEW, NEW), NEW),
        ((OLD, OLD, NEW, NEW, NEW), NEW),
    ],
)
def test_what_most_of_them_say_is_believed(said: tuple[Said, ...], found: Address) -> None:
    assert Told(*said).primary(1.0) == found


@pytest.mark.parametrize(
    ("said", "kind", "match"),
    [
        ((OLD, AWAY, AWAY), errors.StoreUnavailable, "1 of 3 answered, with 10.0.0.1:6379. .*refused"),
        ((OLD, NEW, AWAY), errors.StoreUnavailable, "2 of 3 answered"),
        ((OLD, NEW), errors.StoreUnavailable, "2 of 2 answered"),
        ((None, AWAY), errors.ConfigurationError, "no primary named 'm'"),
        ((AWAY, AWAY, AWAY), errors.StoreUnavailable, "0 of 3 answered, with nothing"),
        ((OLD, OLD, NEW, NEW, AWAY), errors.StoreUnavailable, "4 of 5 answered"),
        ((None, None, None), errors.ConfigurationError, "no primary named 'm'.*SENTINEL MASTERS"),
        ((REFUSED, REFUSED, AWAY), errors.ConfigurationError, "refuses the password"),
    ],
)
def test_anything_else_is_not(said: tuple[Said, ...], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        Told(*said).primary(1.0)


def test_no_more_are_asked_than_needed_and_the_silent_ones_last() -> None:
    route = Told(AWAY, NEW, NEW)
    for _ in range(3):
        route.primary(1.0)
    route.asked.clear()
    route.primary(1.0)
    assert sorted(route.asked) == [("h1", 26379), ("h2", 26379)]


def test_nobody_is_asked_when_there_is_no_time() -> None:
    route = Told(NEW, NEW)
    with pytest.raises(errors.StoreUnavailable, match="0 of 2"):
        route.primary(0.0)


def test_connections_of_one_process_share_a_route() -> None:
    urls = [
        f"redis+sentinel://:{word}@h1:1,h2:2/{name}" for word, name in (("a", "m"), ("b", "m"), ("a", "n"))
    ]
    routes = [Endpoint(StoreSettings.load(redis_url=url), "test").route for url in urls]
    assert routes[0] is routes[1] is not routes[2]
    assert Endpoint(StoreSettings.load(redis_url="redis://h"), "test").route is None


class Connection:
    """What a connection of redis-py looks like to a route."""

    def __init__(self) -> None:
        self._sock, self.far = socket.socketpair()

    @property
    def is_cut(self) -> bool:
        self.far.setblocking(False)
        try:
            return self.far.recv(1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        self._sock.close()
        self.far.close()


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    made = [Connection() for _ in range(4)]
    yield made
    for one in made:
        one.close()


def test_connections_to_other_servers_are_cut(connections: list[Connection]) -> None:
    route = Told(NEW, NEW)
    for one, where in zip(connections, ("old-run", "new-run", OLD, NEW), strict=True):
        route.note(one, where)
    assert route.cut_others(NEW, "new-run") == 2
    assert [one.is_cut for one in connections] == [True, False, True, False]
    assert route.cut_others(NEW, "new-run") == 0


def test_a_connection_that_is_closed_already_is_no_trouble(connections: list[Connection]) -> None:
    route = Told(NEW, NEW)
    route.note(connections[0], "old-run")
    connections[0]._sock.close()
    assert route.cut_others(NEW, "new-run") == 0


def test_an_answer_is_an_address_or_nothing() -> None:
    assert address_in([b"10.0.0.2", b"6379"]) == NEW
    assert address_in(None) is None


def test_a_route_is_made_once() -> None:
    target = target_of(StoreSettings.load(redis_url="redis+sentinel://x1:1,x2:2/m"))
    assert route_to(target) is route_to(target)
