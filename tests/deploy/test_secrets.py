"""A password never shows: everything runs with a marked one, and all that can be seen is searched."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer
import typer.main

from slicelock.cli import main
from slicelock.cli.app import everything
from tests.support.acl_server import MARK, ROOT, Guarded
from tests.support.wait import wait_until

SLICELOCK = [sys.executable, "-m", "slicelock"]
AGENT = [sys.executable, "-m", "slicelock_agent"]
JOB = """
import logging, slicelock
logging.basicConfig(level=logging.DEBUG)
for number in range(3):
    with slicelock.Slice("s").turn(phase="train") as turn:
        print("held", turn, flush=True)
print(slicelock.Slice("s"), repr(slicelock.Slice("s")), flush=True)
input()
"""


def environment(guarded: Guarded, folder: Path, user: str, *, file: bool) -> dict[str, str]:
    """Settings with the password in the URL, or in a file."""
    given = {"SLICELOCK_POOL": "p", "SLICELOCK_JOB": "j", "SLICELOCK_NODE": "n1", "SLICELOCK_POLL": "0.2"}
    given |= {"SLICELOCK_STATE_DIR": f"{folder}/state", "SLICELOCK_SIM_DIR": f"{folder}/sim"}
    if file:
        given |= {"SLICELOCK_REDIS_URL": guarded.server.url, "SLICELOCK_REDIS_USER": user}
        return {**given, "SLICELOCK_REDIS_PASSWORD_FILE": str(guarded.password_file(user))}
    return {**given, "SLICELOCK_REDIS_URL": guarded.url(user)}


def shown() -> list[str]:
    """What `ps` shows of any process that has the mark in its arguments or its title."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        for name in ("cmdline", "comm") if folder.name.isdigit() else ():
            try:
                text = (folder / name).read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if MARK in text:
                found.append(f"{folder.name}: {text}")
    return found


@pytest.fixture
def at_work(guarded: Guarded, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An agent and a job at work, as talkative as can be; the file with everything that they say."""
    file = request.param == "file"
    said = tmp_path / "said"
    with ExitStack() as ends:
        out = ends.enter_context(said.open("wb"))

        def start(words: list[str], user: str) -> None:
            env = {**os.environ, **environment(guarded, tmp_path, user, file=file)}
            process = subprocess.Popen(
                words, env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=out, stderr=out
            )
            ends.callback(process.communicate, timeout=20)
            ends.callback(process.terminate)

        def says(word: bytes, times: int = 1) -> None:
            wait_until(lambda: said.read_bytes().count(word) >= times, 20, said.read_text())

        start([*AGENT, "--debug", "--slice", "s=sim:0"], "agent")
        says(b"slicelock-agent ready")
        start([sys.executable, "-c", JOB], "client")
        says(b"held", 3)
        start([*SLICELOCK, "run", "--hold", "--slice", "s", "--", "sleep", "60"], "client")
        yield said


@pytest.mark.one_server
@pytest.mark.parametrize("at_work", ["url", "file"], indirect=True)
def test_neither_processes_nor_what_they_say_show_it(guarded: Guarded, at_work: Path) -> None:
    wait_until(lambda: running("sleep 60"))
    assert shown() == []
    guarded.server.stop()  # now everybody complains
    wait_until(lambda: "cannot be reached" in at_work.read_text(errors="replace"), 20)
    assert shown() == []
    assert MARK not in at_work.read_text(errors="replace")


def running(words: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return words in listed.splitlines()


def said_by(words: list[str], env: Mapping[str, str]) -> str:
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            words,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=empty,
        )
    return done.stdout + done.stderr


WRONG = {
    "a wrong password": "redis://client:{}@127.0.0.1:1/0",
    "a port that is none": "redis://client:{}@127.0.0.1:{}/0",
    "no host": "redis://client:{}@:/0",
    "a scheme that is none": "http://client:{}@h/0",
    "an option that is none": "redis://client:{}@h/0?socket_timeout=1",
    "one Sentinel": "redis+sentinel://client:{}@h:26379/mymaster/0",
    "Sentinels without a name": "redis+sentinel://client:{}@h:1,i:1,j:1",
    "Sentinels that are away": "redis+sentinel://client:{}@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/mymaster/0",
    "a database that is none": "redis://client:{}@h/x",
    "a slash in it": "redis://client:/{}@h/0",
    "a slash in it, and Sentinels": "redis+sentinel://client:{}/{}@h:1,i:1,j:1/mymaster/0",
}


ASKERS = {
    "status": [*SLICELOCK, "status", "--debug"],
    "doctor": [*SLICELOCK, "doctor"],
    "run": [*SLICELOCK, "run", "--slice", "s", "--hold", "--", "true"],
    "agent": [*AGENT, "--slice", "s=sim:0", "--debug"],
    "script": [sys.executable, "-c", "import slicelock; slicelock.Slice('s').acquire(timeout=1)"],
}
BY_ALL = ("a wrong password", "a slash in it", "Sentinels that are away")


@pytest.mark.parametrize(
    ("asker", "what"),
    [*(("status", what) for what in WRONG), *((one, what) for one in list(ASKERS)[1:] for what in BY_ALL)],
)
def test_no_error_repeats_it(asker: str, what: str, tmp_path: Path) -> None:
    env = {
        "SLICELOCK_REDIS_URL": WRONG[what].replace("{}", MARK),
        "SLICELOCK_JOB": "j",
        "SLICELOCK_STORE_TIMEOUT": "1",
    }
    env |= {
        "SLICELOCK_STATE_DIR": f"{tmp_path}/state",
        "SLICELOCK_SIM_DIR": f"{tmp_path}/sim",
        "PYTHONPATH": f"{ROOT}:{ROOT}/agent",
    }
    said = said_by(ASKERS[asker], env)
    assert said
    assert MARK not in said


def commands() -> Iterator[list[str]]:
    group = typer.main.get_command(everything())
    yield []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        yield [name]
        yield from ([name, one] for one in getattr(command, "commands", ()))


def test_no_help_and_no_command_shows_it(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", guarded.url("viewer"))
    monkeypatch.setenv("SLICELOCK_POOL", "p")
    for words in (
        *([*one, "--help"] for one in commands()),
        ["doctor", "--json"],
        ["status", "--json"],
        ["version"],
    ):
        main(words)
    out, err = capsys.readouterr()
    assert "SLICELOCK" in out
    assert MARK not in out + err


def test_a_command_gets_the_environment_that_was_given(guarded: Guarded, tmp_path: Path) -> None:
    env = environment(guarded, tmp_path, "client", file=True) | {"SLICELOCK_MODE": "off"}
    said = said_by([*SLICELOCK, "run", "--", "env"], {**env, "PYTHONPATH": f"{ROOT}:{ROOT}/agent"})
    assert f"SLICELOCK_REDIS_PASSWORD_FILE={guarded.password_file('client')}" in said
    assert MARK not in said
