"""The doctor on servers that are configured wrongly, with users who may not do everything, with Sentinels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from slicelock.cli import checks_redis
from slicelock.cli.failures import ExitCode
from slicelock.embedded import EmbeddedServer, find_server
from slicelock.findings import Severity
from slicelock.keys import Keys
from slicelock.store.sentinel_facts import SentinelFacts
from slicelock.wire import Declare
from tests.cli.conftest import Call
from tests.cli.test_doctor import FACTS
from tests.conftest import missing, wanted_servers
from tests.support.acl_server import Guarded, acl_file
from tests.support.scripts import Scripts
from tests.support.sentinels import Deployment
from tests.support.stored import edit


def test_every_finding_that_is_not_well_says_what_it_means_and_what_to_do() -> None:
    bad = replace(
        FACTS,
        eviction="volatile-lru",
        persistence="",
        round_trip_ms=99.0,
        clock_ahead_s=99.0,
        role="slave",
        info={
            "slave0": "ip=a,port=1,state=online,offset=1,lag=99",
            "connected_clients": "99",
            "used_memory": "99",
        },
        maxmemory=100,
        config={
            "min-replicas-to-write": "2",
            "client-output-buffer-limit": "normal 0 0 0 replica 9 9 9 pubsub 1000 1000 60",
            "timeout": "5",
            "maxclients": "100",
        },
        parts={part: ["SET x"] for part in checks_redis.PARTS},
        user="u",
    )
    ill = [one for one in checks_redis.server(bad) if one.severity != Severity.OK]
    assert {one.check for one in ill} == {
        *("connection", "server", "eviction", "memory", "persistence", "clock", "replicas", "min-replicas"),
        *("output buffers", "idle timeout", "connections", "rights"),
    }
    assert all(one.meaning and one.remedy for one in ill)


@pytest.mark.parametrize(
    ("least", "replicas", "severity"),
    [(0, 0, "ok"), (0, 2, "ok"), (1, 0, "critical"), (1, 1, "critical"), (1, 2, "ok"), (2, 2, "critical")],
)
def test_min_replicas_must_leave_a_promoted_replica_able_to_write(
    least: int, replicas: int, severity: str
) -> None:
    info = {f"slave{n}": "ip=a,port=1,state=online,offset=1,lag=0" for n in range(replicas)}
    facts = replace(FACTS, info=info, config={"min-replicas-to-write": str(least)})
    seen = {one.check: one for one in checks_redis.replication(facts)}
    assert seen["min-replicas"].severity == severity


SENTINEL = SentinelFacts("s1:26379", "", "p:6379", 2, 2, 2, "master", "", 3)


@pytest.mark.parametrize(
    ("changes", "bad"),
    [
        ([{}, {}, {}], {}),
        ([{}, {}, {"trouble": "away"}], {"sentinels": "warning"}),
        ([{}, {"trouble": "away"}, {"trouble": "away"}], {"sentinels": "critical"}),
        ([{"told": False, "flags": "", "others": 0}] * 3, {}),
        ([{}, {}, {"told": False, "flags": "", "others": 0}], {}),
        ([{}, {}, {"primary": "q:6379"}], {"primary": "critical"}),
        ([{}, {}, {"flags": "s_down,master"}], {"primary": "critical"}),
        ([{}, {}, {"needed": 1}], {"quorum": "warning"}),
        ([{}, {}, {"quorum": "NOQUORUM 1 usable"}], {"quorum": "critical"}),
        ([{}, {}, {"others": 4}], {"sentinels known": "warning"}),
        ([{"replicas": 0}, {"replicas": 0}, {"replicas": 0}], {"failover": "critical"}),
    ],
)
def test_what_is_wrong_with_sentinels(changes: list[dict[str, object]], bad: dict[str, str]) -> None:
    seen = checks_redis.sentinels([replace(SENTINEL, **change) for change in changes])
    ill = [one for one in seen if one.severity != Severity.OK]
    assert {one.check: str(one.severity) for one in ill} == bad
    assert all(one.meaning and one.remedy for one in ill)


def test_without_sentinels_nothing_is_said_of_them() -> None:
    assert list(checks_redis.sentinels([])) == []


def findings(call: Call) -> tuple[int, dict[str, dict[str, str]]]:
    """The doctor's exit code, and what it finds, by check."""
    ended = call("doctor", "--json")
    return ended.code, {one["check"]: one for one in json.loads(ended.out)["checks"]}


Wrong = tuple[dict[str, str], str, str]
WRONG: dict[str, Wrong] = {
    "forgets": ({"maxmemory-policy": "allkeys-lfu"}, "eviction", "critical"),
    "forgets soon": ({"maxmemory-policy": "volatile-ttl", "maxmemory": "100mb"}, "eviction", "critical"),
    "no replica": ({"min-replicas-to-write": "1"}, "min-replicas", "critical"),
    "buffers": ({"client-output-buffer-limit": "pubsub 1000 500 60"}, "output buffers", "warning"),
    "timeout": ({"timeout": "10"}, "idle timeout", "warning"),
    "nothing kept": ({"save": "", "appendonly": "no"}, "persistence", "warning"),
    "no room": ({"maxmemory": "500kb"}, "memory", "critical"),
    "few connections": ({"maxclients": "1"}, "connections", "warning"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("kind", wanted_servers())
def test_a_server_that_is_configured_wrongly(
    call: Call,
    own_server: Callable[..., EmbeddedServer],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    wrong: Wrong,
) -> None:
    options, check, severity = wrong
    server = own_server(binary=binary_of(kind), options={"appendonly": "yes", **options})
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    code, seen = findings(call)
    assert seen[check]["severity"] == severity, seen[check]
    assert seen[check]["meaning"] and seen[check]["remedy"]
    assert code == (ExitCode.OTHER if severity == "critical" else ExitCode.DONE)


def binary_of(kind: str) -> str:
    found = find_server() if kind == "valkey" else shutil.which("redis-server")
    if found is None:
        missing(kind)
    return str(found)


ROLES = {"viewer": "look", "client": "take turns", "agent": "serve a node", "operator": "declare"}


@pytest.mark.parametrize("role", ROLES)
def test_the_users_of_the_examples_may_do_their_part_and_no_more(
    role: str, server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    with EmbeddedServer(binary=server.binary, options={"aclfile": str(acl_file(tmp_path))}) as made:
        monkeypatch.setenv("SLICELOCK_REDIS_URL", Guarded(made).url(role))
        _, seen = findings(call)
    assert seen["rights"]["severity"] == "ok", seen["rights"]
    assert ROLES[role] in seen["rights"]["found"]
    if role in ("viewer", "client"):
        assert "serve a node" not in seen["rights"]["found"] and "declare" not in seen["rights"]["found"]


def test_a_pool_that_nobody_has_called_is_no_clock_that_jumps(
    call: Call, slicelock_env: dict[str, str], scripts: Scripts
) -> None:
    scripts.client.xadd(scripts.keys.events, {"type": "clock", "t": "1", "step_ms": "7927"})
    seen = findings(call)[1]["clock steps"]
    assert seen["severity"] == "ok" and "1 time nothing called" in seen["found"]
    scripts.run(Declare("s", {"n": ["0"]}))
    assert findings(call)[1]["clock steps"]["severity"] == "warning"  # an agent would have called


def test_a_clock_that_jumps_is_told(call: Call, slicelock_env: dict[str, str], scripts: Scripts) -> None:
    assert findings(call)[1]["clock steps"]["severity"] == "ok"
    scripts.client.xadd(scripts.keys.events, {"type": "clock", "t": "1", "step_ms": "-90000"})
    code, seen = findings(call)
    assert (code, seen["clock steps"]["severity"]) == (ExitCode.DONE, "warning")
    assert "1 step" in seen["clock steps"]["found"] and "1m 30s" in seen["clock steps"]["found"]


def test_a_pool_of_another_schema(
    call: Call, slicelock_env: dict[str, str], client: redis.Redis, pool: str
) -> None:
    edit(client, Keys(pool).meta, schema="99")
    code, seen = findings(call)
    client.delete(Keys(pool).meta)
    assert (code, seen["schema"]["severity"]) == (ExitCode.OTHER, "critical")


def test_real_sentinels(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is well; then a Sentinel is away, then two."""
    with Deployment(binary_of(wanted_servers()[0]), replicas=1) as made:
        made.wait_ready()
        monkeypatch.setenv("SLICELOCK_REDIS_URL", made.url)
        code, seen = findings(call)
        assert code == ExitCode.DONE, seen
        for check in ("sentinels", "primary", "quorum", "sentinels known", "failover", "replicas"):
            assert seen[check]["severity"] == "ok", seen[check]
        with made.primary.client() as client:
            client.config_set("min-replicas-to-write", 1)
        code, seen = findings(call)
        assert (code, seen["min-replicas"]["severity"]) == (ExitCode.OTHER, "critical"), (
            "two nodes block each other"
        )
        with made.primary.client() as client:
            client.config_set("min-replicas-to-write", 0)
        made.sentinels[0].kill()
        code, seen = findings(call)
        assert (code, seen["sentinels"]["severity"]) == (ExitCode.DONE, "warning")
        made.sentinels[1].kill()
        code, seen = findings(call)
        assert code == ExitCode.UNREACHABLE
        assert seen["sentinels"]["severity"] == "critical"


ENOUGH = "+hello +ping +subscribe +client|setname +sentinel|get-master-addr-by-name"


def test_a_user_of_the_sentinels_with_the_least_rights(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """What clients need is enough; what is refused is said, and by whom."""
    with Deployment(binary_of(wanted_servers()[0]), replicas=1) as made:
        made.wait_ready()
        for sentinel in made.sentinels:
            with sentinel.client() as client:
                client.execute_command("ACL", "SETUSER", "least", "on", ">secret", "&*", *ENOUGH.split())
        monkeypatch.setenv("SLICELOCK_REDIS_URL", made.url)
        monkeypatch.setenv("SLICELOCK_SENTINEL_USER", "least")
        monkeypatch.setenv("SLICELOCK_SENTINEL_PASSWORD", "secret")
        code, seen = findings(call)
        assert code == ExitCode.DONE, seen
        assert seen["sentinels"]["found"] == "3 of 3 answer" and seen["sentinels"]["severity"] == "ok"
        assert seen["quorum"]["found"].startswith(checks_redis.NOT_TOLD)
        with made.sentinels[0].client() as client:
            client.execute_command("ACL", "SETUSER", "least", ">other", "<secret")
        _, seen = findings(call)
        assert seen["sentinels"]["severity"] == "warning"
        assert "2 of 3 answer; not 127.0.0.1:" in seen["sentinels"]["found"]
        assert "refuses" in seen["sentinels"]["found"], seen["sentinels"]
