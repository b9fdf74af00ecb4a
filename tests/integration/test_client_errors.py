"""Bad input: one clear line that names the thing and the remedy, and nothing left behind."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slicelock
from slicelock import AsyncSlice, Slice, errors
from slicelock.companion import close_all
from slicelock.embedded import EmbeddedServer
from slicelock.settings import Settings
from tests.support.scripts import connect
from tests.support.sides import ROOT, Side, environment
from tests.support.stored import edit
from tests.support.wait import wait_until


def take(**settings: Any) -> None:
    """Take a turn on slice a."""
    Slice("a", settings=Settings(**{"job": "j1", **settings})).acquire().yield_()


def take_async(**settings: Any) -> None:
    async def inside() -> None:
        turn = await AsyncSlice("a", settings=Settings(**{"job": "j1", **settings})).acquire()
        await turn.yield_()

    asyncio.run(inside())


both = pytest.mark.parametrize("take", [take, take_async], ids=["sync", "async"])


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


@pytest.fixture(autouse=True)
def _closed(request: pytest.FixtureRequest) -> Any:
    yield
    close_all()


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "é", "x" * 65])
def test_a_bad_slice_name(name: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="slice name") as caught:
        Slice(name)
    assert repr(name[:80]) in one_line(caught.value)


def test_no_slice_at_all() -> None:
    with pytest.raises(errors.ConfigurationError, match="needs the name of a slice"):
        Slice()


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"phase": "a b"}, "phase name 'a b'"),
        ({"timeout": -1.0}, "timeout of -1 s"),
        ({"timeout": math.nan}, "timeout of nan s"),
        ({"priority": 11}, "Priority 11"),
        ({"priority": 1.5}, "Priority 1.5"),
    ],
)
def test_a_bad_wish(side: Side, wish: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=says) as caught:
        side.acquire("a", **wish)
    one_line(caught.value)


def test_a_bad_lane() -> None:
    with pytest.raises(errors.ConfigurationError, match="lane name"):
        Slice("a", lane="a/b")


@both
def test_no_redis_url(take: Callable[..., None]) -> None:
    with pytest.raises(errors.ConfigurationError, match="SLICELOCK_REDIS_URL is not set") as caught:
        take()
    assert "SLICELOCK_MODE=off" in one_line(caught.value)


@both
def test_no_job(take: Callable[..., None]) -> None:
    with pytest.raises(errors.ConfigurationError, match="SLICELOCK_JOB is not set") as caught:
        take(redis_url="redis://localhost", job=None)
    one_line(caught.value)


@pytest.mark.parametrize("members", ["0", "-1", "two"])
def test_bad_members(members: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_MEMBERS", members)
    with pytest.raises(errors.ConfigurationError, match="SLICELOCK_MEMBERS") as caught:
        Slice("a").acquire()
    one_line(caught.value)


@both
def test_an_unreachable_server(take: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(errors.StoreUnavailable, match="cannot be reached") as caught:
        take(redis_url=f"unix://{tmp_path}/none.sock")
    assert str(tmp_path) in one_line(caught.value)
    with pytest.raises(errors.StoreUnavailable, match=r"127\.0\.0\.1:1 ") as caught:
        take(redis_url="redis://:secret@127.0.0.1:1/0")
    assert "secret" not in str(caught.value)


@both
def test_a_wrong_password(take: Callable[..., None], own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server()
    with connect(server.url) as admin:
        admin.config_set("requirepass", "right")
        for url in (server.url.replace("unix://", "unix://:wrong@"), server.url):
            with pytest.raises(errors.ConfigurationError, match="refuses the user or the password") as caught:
                take(redis_url=url)
            assert "wrong@" not in one_line(caught.value)
        admin.config_set("requirepass", "")


@both
def test_a_user_without_rights(take: Callable[..., None], own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server()
    with connect(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@read", "+client", "+info")
        url = server.url.replace("unix://", "unix://weak:secret@")
        with pytest.raises(errors.ConfigurationError, match="rights that this needs") as caught:
            take(redis_url=url)
        assert "secret" not in one_line(caught.value)


@both
def test_a_schema_of_another_version(take: Callable[..., None], server: EmbeddedServer, pool: str) -> None:
    with connect(server.url) as admin:
        edit(admin, f"slicelock:{{{pool}}}:meta", schema="99")
    with pytest.raises(errors.SchemaMismatch, match="has schema 99") as caught:
        take(redis_url=server.url, pool=pool)
    one_line(caught.value)


def test_an_unknown_slice(side: Side) -> None:
    with pytest.raises(errors.UnknownSlice, match="no slice nope") as caught:
        side.acquire("nope")
    one_line(caught.value)
    with pytest.raises(errors.UnknownSlice, match="no slice nope"):
        side.acquire("a", "nope")
    assert side.requests() == []
    side.give(side.acquire("a"))


def test_a_server_at_its_memory_limit(side: Side) -> None:
    """Whoever asks waits, and a new process fails with a clear line; heartbeats and yields go on."""
    turn = side.acquire("a", run="r1")
    side.give(side.acquire("b", run="r2"))
    with connect(side.url) as admin:
        admin.config_set("maxmemory", "1")
        try:
            with pytest.raises(errors.StoreUnavailable, match="memory limit") as caught:
                side.acquire("b", run="r3")
            one_line(caught.value)
            with pytest.raises(errors.AcquireTimeout, match="memory limit"):
                side.acquire("b", run="r2", timeout=0.5)
            waiting = side.ask("b", run="r2")
            turn.check()
            side.give(turn)
            assert not waiting.done()
        finally:
            admin.config_set("maxmemory", "0")
    side.give(waiting.result(20))
    assert side.requests() == []


def why_not(side: Side, name: str, **wish: Any) -> str:
    with pytest.raises(errors.AcquireTimeout) as caught:
        side.acquire(name, **wish)
    return str(caught.value)


def test_a_password_and_rights_that_are_changed(side: Side) -> None:
    """Whoever was served before waits until they are right again; turns go on."""
    turn = side.acquire("a", run="r1")
    side.give(side.acquire("b", run="r2"))
    with connect(side.url) as admin:
        for new, wrong, right in (
            ("r3", ("-evalsha", "-eval"), ("+@all",)),
            ("r4", ("resetpass",), ("nopass",)),
        ):
            admin.execute_command("ACL", "SETUSER", "default", *wrong)
            try:
                for kind in ("normal", "pubsub"):
                    admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
                wait_until(lambda: re.search("refuses|rights", why_not(side, "b", run="r2", timeout=0.5)))
                waiting = side.ask("b", run="r2")
                with pytest.raises(errors.ConfigurationError, match=r"refuses|rights"):
                    side.acquire("b", run=new)
                turn.check()
                assert not waiting.done()
            finally:
                admin.execute_command("ACL", "SETUSER", "default", *right)
            side.give(waiting.result(20))
    side.give(turn)
    assert side.requests() == []


def test_the_same_member_twice(side: Side) -> None:
    """Two live processes that both say that they are member 0 of one run."""
    turn = side.acquire("a", run="r1")
    twin = (
        "from slicelock import Slice, errors\n"
        "from slicelock.protocol import asking\n"
        "asking.TAKEN_S = 0.3\n"
        "try: Slice('b').acquire()\n"
        "except errors.MemberTaken as error: print(error)\n"
    )
    command = [sys.executable, "-c", twin]
    environ = environment(side, run="r1")
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("Member 0 of run r1 is another live process (")
    assert "SLICELOCK_MEMBER" in done.stdout
    turn.check()
    side.give(turn)
    side.give(side.acquire("a", run="r1"))


def test_errors_carry_their_facts(side: Side) -> None:
    turn = side.acquire("a", run="r1")
    with pytest.raises(slicelock.AcquireTimeout) as caught:
        side.acquire("a", run="r2", timeout=0.1)
    assert (caught.value.slice, caught.value.job, caught.value.run) == ("a", "job-r2", "r2")
    side.give(turn)
