"""Opening a connection while Sentinels change their minds."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from slicelock import errors
from slicelock.embedded import EmbeddedServer
from slicelock.settings import StoreSettings
from slicelock.store.opening import Endpoint, opened
from slicelock.store.sentinel import Route, Undecided
from tests.support.fake_sentinels import AWAY, OLD, Changing, Told


def endpoint_of(route: Route) -> Endpoint:
    made = Endpoint(StoreSettings.load(redis_url="redis+sentinel://h0:1,h1:2,h2:3/m"), "test")
    made.route = route
    return made


def test_who_starts_while_the_sentinels_disagree_waits_for_them(
    own_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock.store.opening.AGAIN_S", 0.01)
    there = ("127.0.0.1", own_server(port=0).port or 0)
    endpoint = endpoint_of(Changing((OLD, there, AWAY), (None, AWAY, AWAY), (there, there, AWAY)))
    link, server = opened(endpoint, 5.0)
    link.disconnect()
    assert server.found is not None
    assert server.found.address == there


@pytest.mark.parametrize("primary", [True, False])
def test_who_has_met_redis_does_not_wait(own_server: Callable[..., EmbeddedServer], primary: bool) -> None:
    there = ("127.0.0.1", own_server(port=0).port or 0)
    endpoint = endpoint_of(Changing((there, there, AWAY), (OLD, there, AWAY)))
    opened(endpoint, 5.0, primary=primary)[0].disconnect()
    begun = time.monotonic()
    with pytest.raises(Undecided):
        opened(endpoint, 60.0, primary=primary)
    assert time.monotonic() - begun < 30.0


def test_who_finds_no_sentinel_does_not_wait() -> None:
    begun = time.monotonic()
    with pytest.raises(errors.StoreUnavailable, match="0 of 3 answered"):
        opened(endpoint_of(Told(AWAY, AWAY, AWAY)), 60.0)
    assert time.monotonic() - begun < 30.0
