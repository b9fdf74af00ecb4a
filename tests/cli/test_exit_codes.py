"""Every command in every kind of trouble: the exit code of the reference, and one line that helps."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator

import pytest
import redis

from slicelock.__main__ import main as program_main
from slicelock.exits import ExitCode
from slicelock.keys import Keys
from tests.cli.conftest import Call, Called
from tests.cli.programs import program
from tests.support.stored import edit
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server  # `test_store` looks at what each kind says

READING = {
    "status": ["status"],
    "status of one": ["status", "a"],
    "list": ["slice", "list"],
}
WRITING = {
    "declare": ["slice", "declare", "b"],
    "forget": ["slice", "forget", "a"],
    "forget a node": ["slice", "forget", "--node", "n"],
    "revoke": ["revoke", "r/main/1"],
}
RUNNING = {
    "run": ["run", "--slice", "a", "--", "true"],
    "hold": ["run", "--slice", "a", "--hold", "--", "true"],
}
EVERY = READING | WRITING | {"revoke the holder": ["revoke", "a"]} | RUNNING
SHORT = {"SLICELOCK_STORE_TIMEOUT": "0.5"}


@pytest.fixture
def end(call: Call) -> Callable[[list[str]], Called]:
    """Run a command to its end: `run` in a process of its own, which it replaces."""

    def made(words: list[str]) -> Called:
        if words[0] != "run":
            return call(*words)
        with program(*words) as process:
            out, err = process.communicate(timeout=60)
        return Called(process.returncode, out, err)

    return made


End = Callable[[list[str]], Called]


@pytest.fixture
def a_slice(call: Call, slicelock_env: dict[str, str]) -> None:
    """There is an agentless slice `a`."""
    assert call("slice", "declare", "a").code == 0


@pytest.mark.parametrize("words", EVERY.values(), ids=EVERY)
def test_no_settings(end: End, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_JOB", "j")
    ended = end(words)
    assert ended.code == ExitCode.SETTINGS
    assert "SLICELOCK_REDIS_URL is not set" in ended.complaint


@pytest.mark.parametrize("url", ["nonsense", "http://localhost", "redis://localhost:port"])
@pytest.mark.parametrize("words", EVERY.values(), ids=EVERY)
def test_a_url_that_is_none(end: End, words: list[str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "run" and url != "nonsense":
        pytest.skip("a process for one of them is enough")
    monkeypatch.setenv("SLICELOCK_REDIS_URL", url)
    monkeypatch.setenv("SLICELOCK_JOB", "j")
    ended = end(words)
    assert ended.code == ExitCode.SETTINGS
    assert "SLICELOCK_REDIS_URL" in ended.complaint


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Something that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("SLICELOCK_REDIS_URL", f"redis://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("SLICELOCK_JOB", "j")
        for name, value in SHORT.items():
            monkeypatch.setenv(name, value)
        yield listener


@pytest.mark.parametrize("words", [*EVERY.values(), ["doctor"]], ids=[*EVERY, "doctor"])
def test_a_server_that_does_not_answer(end: End, words: list[str], silent_server: socket.socket) -> None:
    ended = end([*words[:-3], "--timeout", "1", *words[-3:]] if "--hold" in words else words)
    assert ended.code == ExitCode.UNREACHABLE
    assert "127.0.0.1" in (ended.out if words == ["doctor"] else ended.complaint)


@pytest.mark.parametrize("words", EVERY.values(), ids=EVERY)
def test_no_server(end: End, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "redis://:hidden@127.0.0.1:1")
    monkeypatch.setenv("SLICELOCK_JOB", "j")
    ended = end([*words[:-3], "--timeout", "1", *words[-3:]] if "--hold" in words else words)
    assert ended.code == ExitCode.UNREACHABLE
    assert "127.0.0.1:1" in ended.complaint and "hidden" not in ended.err


@pytest.mark.parametrize("words", EVERY.values(), ids=EVERY)
def test_a_wrong_password(
    end: End, words: list[str], slicelock_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = slicelock_env["SLICELOCK_REDIS_URL"].replace("://", "://nobody:hidden@")
    monkeypatch.setenv("SLICELOCK_REDIS_URL", url)
    ended = end(words)
    assert ended.code == ExitCode.SETTINGS
    assert "password" in ended.complaint and "hidden" not in ended.err


@pytest.fixture
def reader(
    client: redis.Redis, slicelock_env: dict[str, str], a_slice: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """This process's user may only read."""
    rules = ["on", ">hidden", "~slicelock:*", "&slicelock:*", "+@all", "-@write", "-publish"]
    client.execute_command("ACL", "SETUSER", "reader", *rules)
    url = slicelock_env["SLICELOCK_REDIS_URL"].replace("://", "://reader:hidden@")
    monkeypatch.setenv("SLICELOCK_REDIS_URL", url)
    yield
    client.execute_command("ACL", "DELUSER", "reader")


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_user_who_may_only_read_reads(end: End, words: list[str]) -> None:
    assert end(words).code == ExitCode.DONE


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("words", [*WRITING.values(), RUNNING["hold"]], ids=[*WRITING, "hold"])
def test_a_user_who_may_only_read_changes_nothing(end: End, words: list[str]) -> None:
    ended = end(words)
    assert ended.code == ExitCode.SETTINGS
    assert "rights" in ended.complaint and "hidden" not in ended.err


@pytest.mark.usefixtures("slicelock_env")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status"], ExitCode.DONE),
        (["slice", "list"], ExitCode.DONE),
        (["status", "a"], ExitCode.OTHER),
        (["slice", "forget", "a"], ExitCode.OTHER),
        (["slice", "forget", "--node", "n"], ExitCode.OTHER),
        (["revoke", "a"], ExitCode.OTHER),
        (["revoke", "r/main/1"], ExitCode.OTHER),
        (RUNNING["run"], ExitCode.NOT_GRANTED),
        (RUNNING["hold"], ExitCode.NOT_GRANTED),
        (["doctor"], ExitCode.DONE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_empty_pool(end: End, words: list[str], code: ExitCode) -> None:
    ended = end(words)
    assert ended.code == code
    if code != ExitCode.DONE:
        assert any(name in ended.complaint for name in ("slice a", "slice 'a'", "Node n", "r/main/1"))


@pytest.mark.parametrize("words", EVERY.values(), ids=EVERY)
def test_a_pool_of_another_version(
    end: End, words: list[str], client: redis.Redis, pool: str, slicelock_env: dict[str, str]
) -> None:
    edit(client, Keys(pool).meta, schema="99")
    ended = end(words)
    client.delete(Keys(pool).meta)
    assert ended.code == ExitCode.OTHER
    assert "schema 99" in ended.complaint and "Upgrade" in ended.complaint


@pytest.mark.parametrize("words", EVERY.values(), ids=EVERY)
def test_a_pool_whose_name_is_none(end: End, words: list[str], slicelock_env: dict[str, str]) -> None:
    ended = end(
        [*words[:1], "--pool", "a b", *words[1:]] if words[0] != "slice" else [*words, "--pool", "a b"]
    )
    assert ended.code == ExitCode.USAGE
    assert "a b" in ended.complaint


@pytest.mark.usefixtures("a_slice")
def test_a_turn_that_is_not_had_in_time(end: End, call: Call) -> None:
    with program("run", "--slice", "a", "--hold", "--", "sleep", "60") as holder:
        wait_until(lambda: "held" in call("status").out, timeout=30, what="the turn")
        ended = end(["run", "--slice", "a", "--timeout", "0.2", "--hold", "--", "true"])
        assert ended.code == ExitCode.NOT_GRANTED and "a is held by job" in ended.err
        assert call("revoke", "a").code == ExitCode.DONE
        assert holder.wait(20) == ExitCode.TURN_LOST


@pytest.mark.parametrize("words", [["status"], ["doctor"], RUNNING["hold"]], ids=" ".join)
def test_ctrl_c_is_no_error(words: list[str], silent_server: socket.socket) -> None:
    with program(*words, env={"SLICELOCK_STORE_TIMEOUT": "30"}) as process:
        link, _ = silent_server.accept()
        with link:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (128 + signal.SIGINT, "", "")


class Interrupted:
    """Whoever imports a module is interrupted in it."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, name: str, *rest: object) -> None:
        if name == self._module:
            raise KeyboardInterrupt


def test_ctrl_c_during_the_start_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slicelock.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted("slicelock.cli"), *sys.meta_path])
    assert program_main() == 128 + signal.SIGINT
