"""Bad input gets one clear line that names the thing and the remedy, and leaves nothing behind."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
import redis

from slicelock.cli.failures import ExitCode
from slicelock.embedded import EmbeddedServer
from tests.cli.conftest import Call
from tests.cli.programs import program

pytestmark = pytest.mark.one_server


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLICELOCK_REDIS_URL", "redis://x:y:z/"),
        ("SLICELOCK_POOL", "a b"),
        ("SLICELOCK_STORE_TIMEOUT", "soon"),
    ],
)
@pytest.mark.usefixtures("slicelock_env")
def test_settings_that_make_no_sense(
    call: Call, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    ended = call("status")
    assert ended.code == ExitCode.SETTINGS
    assert name in ended.complaint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLICELOCK_MEMBERS", "0"),
        ("SLICELOCK_MEMBERS", "many"),
        ("SLICELOCK_RENEW", "50"),
        ("SLICELOCK_LEASE", "-1"),
        ("SLICELOCK_JOB", "a/b"),
        ("SLICELOCK_MODE", "perhaps"),
    ],
)
def test_settings_of_a_run_that_make_no_sense(slicelock_env: dict[str, str], name: str, value: str) -> None:
    with program("run", "--slice", "a", "--hold", "--", "true", env={name: value}) as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (ExitCode.SETTINGS, "")
    assert name in err and len(err.splitlines()) == 1


def test_a_wrong_password(
    call: Call, own_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(options={"requirepass": "right"}, port=0)
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url.replace("redis://", "redis://:wrong-one@"))
    for words in (["status"], ["slice", "declare", "a"]):
        ended = call(*words)
        assert ended.code == ExitCode.SETTINGS
        assert "password" in ended.complaint and "SLICELOCK_REDIS_URL" in ended.complaint
        assert "wrong-one" not in ended.err


@pytest.fixture
def old_server() -> Iterator[str]:
    """Something that says that it is Redis 5."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        info = b"# Server\r\nredis_version:5.0.14\r\n"
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            with link:
                while asked := link.recv(65536):
                    told = b"$%d\r\n%s\r\n" % (len(info), info) if b"INFO" in asked.upper() else b"+OK\r\n"
                    link.sendall(told * max(asked.count(b"*"), 1))

    thread = Thread(target=serve)
    thread.start()
    yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_a_server_that_is_too_old(call: Call, old_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", old_server)
    ended = call("status")
    assert ended.code == ExitCode.SETTINGS
    assert "5.0.14" in ended.complaint and "too old" in ended.complaint and "or newer" in ended.complaint


def test_a_full_server(
    call: Call, own_server: Callable[..., EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
    ended = call("slice", "declare", "a")
    assert ended.code == ExitCode.UNREACHABLE
    assert "memory limit" in ended.complaint and "maxmemory" in ended.complaint


def test_one_device_in_two_slices_of_up() -> None:
    with program("up", "--slice", "a=sim:0", "--slice", "b=sim:0") as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode != 0 and out == ""
    assert "sim:0" in err and len(err.splitlines()) == 1


def test_two_runs_of_one_job_are_two_parties(slicelock_env: dict[str, str], call: Call) -> None:
    assert call("slice", "declare", "a").code == 0
    for _ in range(2):
        with program("run", "--slice", "a", "--hold", "--", "true") as process:
            process.communicate(timeout=20)
        assert process.returncode == 0
