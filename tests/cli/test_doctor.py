"""The doctor finds what is wrong and says what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from slicelock import scripts
from slicelock.cli import checks, checks_redis
from slicelock.cli.doctor import this_machine
from slicelock.cli.failures import ExitCode
from slicelock.embedded import EmbeddedServer
from slicelock.findings import Finding, Severity
from slicelock.settings import AgentSettings, Settings
from slicelock.store.probe import TRIALS, ServerFacts
from tests.cli.conftest import Call
from tests.cli.test_render import NODE, PICTURE, SLICE

FACTS = ServerFacts(
    place="localhost:6379",
    kind="Valkey",
    version="9.1.2",
    role="master",
    eviction="noeviction",
    maxmemory=0,
    persistence="append-only file",
    round_trip_ms=0.2,
    clock_ahead_s=0.01,
    refused={},
)
OURS = NODE.version


def found(*findings: Finding) -> dict[str, Severity]:
    """What is not well."""
    bad = {one.check: one.severity for one in findings if one.severity != Severity.OK}
    assert all(one.remedy for one in findings if one.severity != Severity.OK)
    assert not any(one.remedy for one in findings if one.severity == Severity.OK)
    return bad


def test_a_good_server_is_well() -> None:
    assert found(*checks_redis.server(FACTS)) == {}


@pytest.mark.parametrize(
    ("change", "check", "severity"),
    [
        ({"eviction": "allkeys-lru"}, "eviction", Severity.CRITICAL),
        ({"role": "slave"}, "server", Severity.CRITICAL),
        ({"persistence": ""}, "persistence", Severity.WARNING),
        ({"clock_ahead_s": -60.0}, "clock", Severity.WARNING),
        ({"round_trip_ms": 55.0}, "connection", Severity.WARNING),
        ({"refused": {"XADD": "NOPERM no"}}, "rights", Severity.CRITICAL),
    ],
)
def test_what_is_wrong_with_a_server(change: dict[str, object], check: str, severity: Severity) -> None:
    assert found(*checks_redis.server(replace(FACTS, **change))) == {check: severity}


def test_what_a_server_does_not_tell_is_not_held_against_it() -> None:
    assert found(*checks_redis.server(replace(FACTS, eviction="", role=""))) == {}


def test_a_short_lease_and_a_missing_job_are_warnings() -> None:
    short = Settings(lease=10, renew=1, job="a")
    assert found(*checks.settings(short)) == {"lease": Severity.WARNING}
    assert found(*checks.settings(Settings())) == {"job": Severity.WARNING}


def test_a_good_pool_is_well() -> None:
    assert found(*checks.pool(PICTURE, OURS)) == {}


def test_what_is_wrong_with_a_pool() -> None:
    silent = replace(NODE, silent=True)
    other = replace(NODE, name="gpu2", version="0.9")
    ill = replace(SLICE, settling=True, blocked={"gpu1": {"kind": "silent", "reason": "node gpu1 is silent"}})
    bad = found(*checks.pool(replace(PICTURE, slices=(ill,), nodes=(silent, other)), OURS))
    assert bad == {
        "slice trainers": Severity.WARNING,
        "agent gpu1": Severity.CRITICAL,
        "versions": Severity.WARNING,
    }
    assert found(*checks.pool(replace(PICTURE, slices=(), nodes=()), OURS)) == {"slices": Severity.WARNING}


def test_an_agent_whose_slice_was_taken_from_it_is_named_with_the_remedy() -> None:
    plain, idle = replace(SLICE, nodes={}), replace(NODE, slices=())
    bad = [one for one in checks.pool(replace(PICTURE, slices=(plain,), nodes=(idle,)), OURS) if one.remedy]
    assert [(one.check, one.severity) for one in bad] == [(f"agent {NODE.name}", Severity.WARNING)]
    assert NODE.name in bad[0].found and f"slicelock slice forget {SLICE.name}" in bad[0].remedy
    silent = replace(idle, silent=True)
    assert found(*checks.pool(replace(PICTURE, slices=(plain,), nodes=(silent,)), OURS)) == {
        f"agent {NODE.name}": Severity.CRITICAL
    }


def test_agents_that_are_alive_need_not_be_started() -> None:
    settling = replace(SLICE, nodes={"gpu1": ("0",), "gpu2": ("0",)}, settling=True)
    [one] = checks.conditions(settling, {"gpu1"})
    assert one.remedy == "Start the agents of gpu2."
    [one] = checks.conditions(settling, {"gpu1", "gpu2"})
    assert "Start" not in one.remedy


def test_a_blocked_slice_is_a_failure() -> None:
    ill = replace(SLICE, blocked={"gpu1": {"kind": "evict", "reason": "run r2 cannot be evicted"}})
    assert found(*checks.conditions(ill, {"gpu1"})) == {"slice trainers": Severity.CRITICAL}


def test_on_a_live_server(call: Call, slicelock_env: dict[str, str], client: redis.Redis, pool: str) -> None:
    ended = call("doctor", "--json")
    seen = json.loads(ended.out)
    by_name = {one["check"]: one for one in seen["checks"]}
    assert (ended.code, seen["ok"]) == (ExitCode.DONE, True)
    assert by_name["eviction"]["severity"] == by_name["rights"]["severity"] == "ok"
    assert by_name["server"]["found"].split()[0] in ("Valkey", "Redis")
    assert client.keys(f"slicelock:{{{pool}}}:*") == []
    assert "maxmemory-policy is noeviction" in call("doctor").out


def test_a_failure_has_a_code_of_its_own(call: Call, slicelock_env: dict[str, str]) -> None:
    call("slice", "declare", "web", "--node", "gpu1=0")
    ended = call("doctor")
    assert ended.code == ExitCode.OTHER
    assert "never heard of" in ended.out and "slicelock slice forget --node gpu1" in ended.out


def test_without_settings(call: Call) -> None:
    ended = call("doctor")
    assert ended.code == ExitCode.SETTINGS
    assert "SLICELOCK_REDIS_URL is not set" in ended.out and "slicelock up" in ended.out


def test_without_a_server(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "redis://127.0.0.1:1/0")
    ended = call("doctor", "--json")
    last = json.loads(ended.out)["checks"][-1]
    assert ended.code == ExitCode.UNREACHABLE
    assert (last["check"], last["severity"]) == ("connection", "critical") and "127.0.0.1:1" in last["found"]


def test_a_server_that_would_forget(
    call: Call, own_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(options={"maxmemory-policy": "allkeys-lru"})
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    ended = call("doctor")
    assert ended.code == ExitCode.OTHER
    assert "allkeys-lru" in ended.out and "CONFIG SET maxmemory-policy noeviction" in ended.out


@pytest.fixture
def poor_user(
    client: redis.Redis, slicelock_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """This process's settings are those of a user that may not do all that slicelock does."""
    rules = ["on", ">hidden", "~slicelock:*", "&slicelock:*", "+@all", "-xadd", "-publish"]
    client.execute_command("ACL", "SETUSER", "poor", *rules)
    monkeypatch.setenv(
        "SLICELOCK_REDIS_URL", slicelock_env["SLICELOCK_REDIS_URL"].replace("://", "://poor:hidden@")
    )
    yield "poor"
    client.execute_command("ACL", "DELUSER", "poor")


def test_a_user_without_rights(call: Call, poor_user: str) -> None:
    ended = call("doctor", "--json")
    found = next(one for one in json.loads(ended.out)["checks"] if one["check"] == "rights")
    assert (ended.code, found["severity"]) == (ExitCode.OTHER, "critical")
    assert "XADD" in found["found"] and "PUBLISH" in found["found"] and "users.acl" in found["remedy"]
    assert "hidden" not in ended.out


def test_what_is_tried_covers_what_the_scripts_call() -> None:
    """Commands that only read a type that is tried, and those that always go with scripts, need no trial."""
    implied = {"TIME", "INFO", "SCARD", "ZCARD", "ZCOUNT", "ZRANGEBYSCORE", "ZRANK", "ZSCORE"}
    called = {
        name
        for path in scripts.lua_root().rglob("*.lua")
        for name in re.findall(r"redis\.p?call\('([A-Z]+)'", path.read_text())
    }
    assert called - implied - {words[0] for words in TRIALS} == set()


def test_folders_that_nobody_can_look_into(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("/", "n" * 300)  # no name that a file can have
    monkeypatch.setenv("SLICELOCK_SIM_DIR", str(folder))
    monkeypatch.setenv("SLICELOCK_STATE_DIR", str(folder))
    looked_at = [one.check for one in this_machine(AgentSettings.load())]
    assert looked_at == ["state folder", "shared memory"]


def test_a_file_in_the_place_of_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLICELOCK_STATE_DIR", str(tmp_path / "file"))
    found = next(this_machine(AgentSettings.load()))
    assert (found.check, found.severity) == ("state folder", Severity.WARNING)
