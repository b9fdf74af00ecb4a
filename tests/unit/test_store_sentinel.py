"""What several Sentinels say, put together."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from slicelock import errors
from slicelock.settings import StoreSettings
from slicelock.store.address import Address, target_of
from slicelock.store.opening import Endpoint
from slicelock.store.sentinel import Primary, address_in, route_to
from tests.support.fake_sentinels import AWAY, NEW, OLD, REFUSED, Said, Told


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
        ((REFUSED, AWAY), errors.ConfigurationError, "refuses the password"),
        ((None, REFUSED, AWAY), errors.ConfigurationError, "refuses the password"),
        ((OLD, NEW, REFUSED), errors.StoreUnavailable, "2 of 3 answered.*refuses the password"),
        ((OLD, AWAY, REFUSED), errors.StoreUnavailable, "1 of 3 answered.*refuses the password"),
        ((None, AWAY, AWAY), errors.StoreUnavailable, "1 of 3 answered, with none"),
        ((REFUSED, AWAY, AWAY), errors.StoreUnavailable, "0 of 3 answered.*refuses the password"),
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
    with pytest.raises(errors.StoreUnavailable, match="no time left to ask the Sentinels"):
        route.primary(0.0)


def test_the_silent_ones_are_asked_last_and_nobody_is_missed_meanwhile() -> None:
    """Others ask while one is put at the end: they see all, and as many must agree."""
    route = Told(NEW, OLD, AWAY, AWAY)
    seen = route._sentinels
    with pytest.raises(errors.StoreUnavailable, match="2 of 4 answered"):
        route.primary(1.0)
    route.suspect(seen[0])
    assert len(seen) == 4
    assert route.sentinels[-1] == seen[0]
    route._sentinels.pop()  # as if another thread were in between
    assert route._agreed(Counter({NEW: 2})) is None


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
    where = [Primary(NEW, 0, "old-run"), Primary(NEW, 0, "new-run"), Primary(OLD), Primary(NEW)]
    for one, primary in zip(connections, where, strict=True):
        route.note(one, primary)
    assert route.cut_others(Primary(NEW, 0, "new-run")) == 2
    assert [one.is_cut for one in connections] == [True, False, True, False]
    assert route.cut_others(Primary(NEW, 0, "new-run")) == 0


def test_servers_that_hide_their_run_id_are_told_by_their_address(connections: list[Connection]) -> None:
    route = Told(NEW, NEW)
    for one, address in zip(connections, (OLD, NEW), strict=False):
        route.note(one, Primary(address))
    assert route.cut_others(Primary(NEW)) == 1
    assert [one.is_cut for one in connections[:2]] == [True, False]


def test_a_connection_that_was_being_opened_meanwhile_is_cut(connections: list[Connection]) -> None:
    """It has no socket yet when the watch leaves the old primary; or its Sentinels were asked before."""
    route = Told(OLD, OLD)
    opening, asked, later, right = connections
    sock, opening._sock = opening._sock, None  # type: ignore[assignment]
    old = route.find(1.0)
    route.note(opening, old)
    assert route.cut_others(Primary(NEW, 0, "new-run")) == 0
    opening._sock = sock
    route.note(opening, replace(old, run_id="old-run"))
    route.note(asked, old)
    route.note(right, Primary(NEW, 0, "new-run"))
    assert [one.is_cut for one in (opening, asked, right)] == [True, True, False]
    route.note(later, replace(route.find(1.0), run_id="newest-run"))  # the Sentinels know better by now
    assert not later.is_cut


def test_a_connection_that_is_closed_already_is_no_trouble(connections: list[Connection]) -> None:
    route = Told(NEW, NEW)
    route.note(connections[0], Primary(NEW, 0, "old-run"))
    connections[0]._sock.close()
    assert route.cut_others(Primary(NEW, 0, "new-run")) == 0


def test_an_answer_is_an_address_or_nothing() -> None:
    assert address_in([b"10.0.0.2", b"6379"]) == NEW
    assert address_in(None) is None


def test_a_route_is_made_once() -> None:
    target = target_of(StoreSettings.load(redis_url="redis+sentinel://x1:1,x2:2/m"))
    assert route_to(target) is route_to(target)
