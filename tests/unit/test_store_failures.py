"""What Redis's errors become; servers that cannot be used."""

from __future__ import annotations

import pytest
from redis import exceptions as redis_errors

from slicelock import errors
from slicelock.store.failures import explain
from slicelock.store.server import Server


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (redis_errors.ConnectionError("refused"), errors.StoreUnavailable),
        (redis_errors.TimeoutError("slow"), errors.StoreUnavailable),
        (redis_errors.BusyLoadingError("loading"), errors.StoreUnavailable),
        (redis_errors.ReadOnlyError("a replica"), errors.StoreUnavailable),
        (redis_errors.ResponseError("NOREPLICAS Not enough good replicas"), errors.StoreUnavailable),
        (redis_errors.ResponseError("BUSY Redis is busy"), errors.StoreUnavailable),
        (
            redis_errors.ResponseError(
                "Script killed by user with SCRIPT KILL... script: 9, on @user_script:1."
            ),
            errors.StoreUnavailable,
        ),
        (redis_errors.ResponseError("MISCONF no disk"), errors.StoreUnavailable),
        (redis_errors.OutOfMemoryError("command not allowed"), errors.StoreUnavailable),
        (redis_errors.AuthenticationError("WRONGPASS"), errors.ConfigurationError),
        (redis_errors.NoPermissionError("no EVALSHA"), errors.ConfigurationError),
        (
            redis_errors.ResponseError("ACL failure in script: No permissions to access a key"),
            errors.ConfigurationError,
        ),
        *(
            (redis_errors.ResponseError(f"{before}{text}"), kind)
            for before in (
                "ERR ",
                "Error running script (call to f_99): @user_script:29: @user_script: 29: -",
                "Error running script (call to f_99): @user_script:8: =[C]: -1: ",
            )
            for text, kind in (
                ("OOM command not allowed when used memory > 'maxmemory'.", errors.StoreUnavailable),
                ("READONLY You can't write against a read only replica.", errors.StoreUnavailable),
                ("The user executing the script can't run this command", errors.ConfigurationError),
            )
        ),
        (redis_errors.ResponseError("ERR something"), errors.StoreError),
    ],
)
def test_each_error_has_its_kind(error: Exception, kind: type[Exception]) -> None:
    explained = explain(error, "redis.example:6379", sent=False)
    assert type(explained) is kind
    assert "redis.example:6379" in str(explained)
    assert "user_script" not in str(explained)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "NOREPLICAS Not enough good replicas. script: 99, on @user_script:3.",
            "min-replicas-to-write 0",
        ),
        ("MISCONF Errors writing to the AOF file: No space left on device", "free the disk"),
    ],
)
def test_refusals_that_an_operator_has_to_end_say_how(text: str, says: str) -> None:
    explained = explain(redis_errors.ResponseError(text), "x", sent=True)
    assert says in explained.advice and explained.advice in str(explained)
    assert "user_script" not in str(explained)


@pytest.mark.parametrize(
    "text",
    [
        "Error 1 connecting to h:6379. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        "Error 136 connecting to h:6379. [X509: NO_CERTIFICATE_OR_CRL_FOUND] no certificate or crl found",
    ],
)
def test_what_tls_lacks_is_blamed_on_its_settings(text: str) -> None:
    advice = explain(redis_errors.ConnectionError(text), "x", sent=False).advice
    assert "SLICELOCK_TLS_CA" in advice and "that it runs" not in advice


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            redis_errors.ConnectionError("Error 1 connecting to h:1. [SSL: WRONG_VERSION_NUMBER] wrong"),
            "redis://",
        ),
        (redis_errors.InvalidResponse('Protocol error, got "H" as reply type byte'), "rediss://"),
    ],
)
def test_a_server_that_is_something_else_is_blamed_on_its_address(error: Exception, advice: str) -> None:
    explained = explain(error, "x", sent=False)
    assert isinstance(explained, errors.StoreUnavailable)
    assert advice in explained.advice and "host and port" in explained.advice


def test_a_record_of_the_wrong_kind_leads_to_the_runbook() -> None:
    text = "WRONGTYPE Operation against a key holding the wrong kind of value script: 99, on @user_script:3."
    assert "the runbook" in explain(redis_errors.ResponseError(text), "x", sent=True).advice


def test_too_many_connections_are_no_fault_of_the_address() -> None:
    advice = explain(redis_errors.ConnectionError("max number of clients reached"), "x", sent=False).advice
    assert "maxclients" in advice and "SLICELOCK_REDIS_URL" not in advice


def test_a_call_that_was_sent_is_undecided() -> None:
    assert isinstance(explain(redis_errors.ConnectionError("reset"), "x", sent=True), errors.StoreTimeout)
    assert isinstance(explain(redis_errors.TimeoutError("slow"), "x", sent=True), errors.StoreTimeout)
    assert isinstance(explain(redis_errors.InvalidResponse("?"), "x", sent=True), errors.StoreTimeout)


@pytest.mark.parametrize("text", ["DB index is out of range", "invalid DB index"])
def test_a_database_that_the_server_lacks_is_a_wrong_setting(text: str) -> None:
    explained = explain(redis_errors.ResponseError(text), "x", sent=False)
    assert isinstance(explained, errors.ConfigurationError)
    assert "SLICELOCK_REDIS_URL" in str(explained)
    assert "SLICELOCK_SENTINEL_DB" in str(explained)


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"version {version}"):
        Server.of(f"# Server\r\nredis_version:{version}\r\n".encode()).check("h:1")


@pytest.mark.parametrize("info", [b"redis_version:7.0.15", b"redis_version:6.2.0", b"", b"nothing", None])
def test_other_servers_are_not(info: object) -> None:
    Server.of(info).check("h:1")


@pytest.mark.parametrize(
    ("info", "match"),
    [
        (b"redis_mode:sentinel", r"Sentinel, not Redis.*redis\+sentinel://"),
        (b"server_mode:sentinel", r"Sentinel, not Redis.*redis\+sentinel://"),
        (b"redis_mode:cluster", "Redis Cluster, which slicelock does not support.*Sentinel"),
        (b"server_mode:cluster", "Redis Cluster, which slicelock does not support.*Sentinel"),
    ],
)
def test_a_server_of_another_kind_is_refused(info: bytes, match: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=match):
        Server.of(info).check("h:1")


def test_a_replica_is_no_primary() -> None:
    replica = Server.of(b"redis_version:7.0.15\r\nrun_id:abc", b"role:slave\r\nconnected_slaves:0")
    replica.check("h:1")
    with pytest.raises(errors.StoreUnavailable, match="h:1 is a replica"):
        replica.check_primary("h:1")


def test_a_full_server_must_not_throw_turns_away() -> None:
    memory = b"maxmemory:%d\r\nmaxmemory_policy:volatile-lru"
    with pytest.raises(errors.ConfigurationError, match=r"h:1 removes keys.*volatile-lru.*noeviction"):
        Server.of(memory % 1000).check_eviction("h:1")
    Server.of(memory % 0).check_eviction("h:1")  # no limit, no eviction
    Server.of(b"maxmemory:1000\r\nmaxmemory_policy:noeviction").check_eviction("h:1")


def test_a_primary_says_who_it_is_and_who_follows_it() -> None:
    primary = Server.of(b"run_id:abc", b"role:master\r\nconnected_slaves:2")
    primary.check_primary("h:1")
    assert (primary.run_id, primary.replicas) == ("abc", 2)
