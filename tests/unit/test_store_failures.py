"""What Redis's errors become; connections that the settings do not allow."""

from __future__ import annotations

import pytest
from redis import exceptions as redis_errors

from slicelock import errors
from slicelock.settings import StoreSettings
from slicelock.store.connect import Endpoint, check_server
from slicelock.store.failures import explain


def endpoint(url: str) -> Endpoint:
    return Endpoint(StoreSettings(redis_url=url), "test")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (redis_errors.ConnectionError("refused"), errors.StoreUnavailable),
        (redis_errors.TimeoutError("slow"), errors.StoreUnavailable),
        (redis_errors.BusyLoadingError("loading"), errors.StoreUnavailable),
        (redis_errors.ReadOnlyError("a replica"), errors.StoreUnavailable),
        (redis_errors.ResponseError("NOREPLICAS Not enough good replicas"), errors.StoreUnavailable),
        (redis_errors.ResponseError("BUSY Redis is busy"), errors.StoreUnavailable),
        (redis_errors.ResponseError("MISCONF no disk"), errors.StoreUnavailable),
        (redis_errors.OutOfMemoryError("command not allowed"), errors.StoreError),
        (redis_errors.AuthenticationError("WRONGPASS"), errors.ConfigurationError),
        (redis_errors.NoPermissionError("no EVALSHA"), errors.ConfigurationError),
        (redis_errors.ResponseError("ERR something"), errors.StoreError),
    ],
)
def test_each_error_has_its_kind(error: Exception, kind: type[Exception]) -> None:
    explained = explain(error, "redis.example:6379", sent=False)
    assert type(explained) is kind
    assert "redis.example:6379" in str(explained)


def test_a_call_that_was_sent_is_undecided() -> None:
    assert isinstance(explain(redis_errors.ConnectionError("reset"), "x", sent=True), errors.StoreTimeout)
    assert isinstance(explain(redis_errors.TimeoutError("slow"), "x", sent=True), errors.StoreTimeout)


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://h/0?db=x"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="SLICELOCK_REDIS_URL"):
        endpoint(url)


@pytest.mark.parametrize("option", ["socket_timeout=1", "protocol=3", "retry_on_timeout=yes", "foo=1"])
def test_options_that_slicelock_sets_itself_are_refused(option: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=option.split("=", maxsplit=1)[0]):
        endpoint(f"redis://h/0?{option}")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://user:secret@db.example:7000/3", "db.example:7000"),
        ("rediss://:secret@db.example", "db.example:6379"),
        ("unix:///run/redis.sock?password=secret", "/run/redis.sock"),
    ],
)
def test_a_place_is_named_without_credentials(url: str, place: str) -> None:
    assert endpoint(url).place == place


def test_tls_is_used_when_the_url_says_so() -> None:
    assert endpoint("rediss://h").tls
    assert not endpoint("redis://h").tls


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"version {version}"):
        check_server(f"# Server\r\nredis_version:{version}\r\n".encode(), "h:1")


@pytest.mark.parametrize("info", [b"redis_version:7.0.15", b"redis_version:6.2.0", b"", b"nothing", None])
def test_other_servers_are_not(info: object) -> None:
    check_server(info, "h:1")
