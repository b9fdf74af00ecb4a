"""`slicelock events`: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from slicelock.cli.failures import ExitCode
from slicelock.embedded import EmbeddedServer
from slicelock.keys import Keys
from tests.cli.conftest import Call
from tests.support.wait import wait_until
from tests.support.world import World

pytestmark = pytest.mark.usefixtures("slicelock_env")

TURN = {"run": "r1", "job": "digits", "lane": "main", "k": "3", "slices": "s t", "phase": "train"}


def add(client: redis.Redis, pool: str, **facts: object) -> None:
    now = client.time()[0] * 1000  # type: ignore[index]
    client.xadd(Keys(pool).events, {"t": now, **facts})  # type: ignore[dict-item]


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "slicelock", "events", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_has_happened(call: Call, client: redis.Redis, pool: str) -> None:
    add(client, pool, type="held", **TURN, waited_ms=5)
    add(client, pool, type="held", **(TURN | {"slices": "u", "job": "other"}))
    add(client, pool, type="silent", node="n1")
    lines = call("events").out.splitlines()
    assert [line.split()[2] for line in lines] == ["held", "held", "silent"]
    assert "\x1b" not in "".join(lines)
    assert [line.split()[2] for line in call("events", "--slice", "s").out.splitlines()] == ["held", "silent"]


def test_json_lines(call: Call, client: redis.Redis, pool: str) -> None:
    add(client, pool, type="held", **TURN, waited_ms=5)
    [told] = [json.loads(line) for line in call("events", "--json").out.splitlines()]
    assert (told["type"], told["k"], told["waited_ms"], told["slices"]) == ("held", 3, 5, ["s", "t"])


def test_only_what_is_recent(call: Call, client: redis.Redis, pool: str) -> None:
    client.xadd(Keys(pool).events, {"type": "old", "t": 1}, id="1000-0")
    add(client, pool, type="new")
    assert [line.split()[2] for line in call("events").out.splitlines()] == ["new"]
    every = call("events", "--since", "1970-01-01T00:00+00:00").out.splitlines()
    assert [line.split()[2] for line in every] == ["old", "new"]


def test_nothing_has_happened(call: Call) -> None:
    assert (call("events").code, call("events").out) == (ExitCode.DONE, "")


def test_following_until_ctrl_c(client: redis.Redis, pool: str, world: World) -> None:
    add(client, pool, type="old")
    with started("--follow") as process:
        wait_until(lambda: client.info("clients")["blocked_clients"], what="it listens")  # type: ignore[index]
        world.declare("a")
        world.member("r1").ask("a")
        assert process.stdout
        assert [process.stdout.readline().split()[2] for _ in range(2)] == ["declared", "held"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")


def test_a_reader_that_has_seen_enough(client: redis.Redis, pool: str) -> None:
    for _ in range(3000):
        add(client, pool, type="held", **TURN)
    with started() as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""


def test_an_outage_is_told_and_waited_out(own_server, monkeypatch: pytest.MonkeyPatch) -> None:
    server: EmbeddedServer = own_server(appendonly=True)
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    monkeypatch.setenv("SLICELOCK_POOL", "p")
    with redis.Redis.from_url(server.url) as client, started("--follow") as process:
        wait_until(lambda: client.info("clients")["blocked_clients"], what="it listens")  # type: ignore[index]
        server.stop()
        assert process.stderr and process.stdout
        assert "Waiting for it." in process.stderr.readline()
        server.start()
        add(client, "p", type="held", **TURN)
        assert process.stdout.readline().split()[2] == "held"


def test_a_password_that_is_changed_is_told_and_waited_for(
    own_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    monkeypatch.setenv("SLICELOCK_POOL", "p")
    with redis.Redis.from_url(server.url) as client, started("--follow") as process:
        wait_until(lambda: client.info("clients")["blocked_clients"], what="it listens")  # type: ignore[index]
        client.config_set("requirepass", "new")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert process.stderr and process.stdout
        assert "Waiting for it." in process.stderr.readline()
        assert "refuses the user or the password" in process.stderr.readline()
        client.config_set("requirepass", "")
        add(client, "p", type="held", **TURN)
        assert process.stdout.readline().split()[2] == "held"


def test_without_redis(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "unix:///nowhere.sock")
    for words in (["events"], ["events", "--follow"]):
        ended = call(*words)
        assert ended.code == ExitCode.UNREACHABLE
        assert "cannot be reached" in ended.complaint
