"""`slicelock up`: everything for one machine, and nothing left afterwards."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock.cli import up
from slicelock.scratch import scratch
from tests.cli.conftest import Call
from tests.cli.programs import alive, below, program
from tests.support.wait import wait_until


def exports(process: subprocess.Popen[str], count: int = 4) -> dict[str, str]:
    """The variables that `up` prints."""
    assert process.stdout is not None
    pairs = [shlex.split(process.stdout.readline())[1].partition("=") for _ in range(count)]
    return {name: value for name, _, value in pairs}


def left_in_memory() -> set[Path]:
    """The folders in shared memory whose maker has ended; others on this machine may use theirs."""
    folders = Path("/dev/shm").glob("slicelock-up-*")
    # In this order: one that is about to end removes its folder first.
    return {folder for folder in folders if not alive(int(folder.name.split("-")[3])) and folder.exists()}


@pytest.fixture(autouse=True)
def nothing_in_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary folders are made in a place of the test's own, which is empty at the end."""
    before = left_in_memory()
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:  # short: it holds a unix socket
        monkeypatch.setenv("TMPDIR", place)
        monkeypatch.setattr(tempfile, "tempdir", None)  # what is found here would be kept for other tests
        yield Path(place)
        assert not list(Path(place).iterdir())
    assert left_in_memory() <= before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_runs_until_it_is_told_to_stop(
    number: signal.Signals, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program("up") as process:
        for name, value in exports(process).items():
            monkeypatch.setenv(name, value)
        seen = json.loads(call("status", "--json").out)
        assert [(one["name"], list(one["nodes"].values())) for one in seen["slices"]] == [
            ("accelerator", [["sim:0"]])
        ]
        children = below(process.pid)
        assert len(children) == 2
        process.send_signal(number)
        assert process.wait(30) == 0
    assert not [pid for pid in children if alive(pid)]


def test_several_slices_and_a_port(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with program(
        "up", "--slice", "a=sim:0,sim:1", "--slice", "b=sim:2", "--port", "0", "--pool", "p"
    ) as process:
        env = exports(process)
        assert env["SLICELOCK_REDIS_URL"].startswith("redis://127.0.0.1:")
        assert (env["SLICELOCK_POOL"], env["SLICELOCK_SIM_DEVICE"]) == ("p", "sim:0")
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        seen = json.loads(call("slice", "list", "--json").out)["slices"]
        assert [list(one["nodes"].values()) for one in seen] == [[["sim:0", "sim:1"]], [["sim:2"]]]
        process.terminate()
        assert process.wait(30) == 0


def test_the_doctor_is_content_with_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with program("up") as process:
        for name, value in exports(process).items():
            monkeypatch.setenv(name, value)
        ended = call("doctor")
        assert ended.code == 0, ended.out
        process.terminate()
        assert process.wait(30) == 0


def test_killed_it_takes_its_children_along_and_the_next_one_sweeps(nothing_in_folders: Path) -> None:
    with program("up") as process:
        exports(process)
        children = below(process.pid)
        process.kill()
        process.wait()
    wait_until(lambda: not [pid for pid in children if alive(pid)], what="server and agent to be gone")
    for place in (nothing_in_folders, Path("/dev/shm")):
        with scratch(place, "up"):  # as the next one does
            pass
    (server,) = nothing_in_folders.iterdir()
    shutil.rmtree(server)


def agents_of(process: subprocess.Popen[str]) -> list[int]:
    return [
        pid for pid in below(process.pid) if b"slicelock_agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_it_starts_its_agent_again(call: Call) -> None:
    with program("up") as process:
        exports(process)
        (agent,) = agents_of(process)
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: agents_of(process) not in ([], [agent]), what="another agent")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "The agent was ended by signal 9; it is started again." in err


def journal_of(folder: Path) -> Path:
    (journal,) = folder.glob("slicelock-up-*/*.journal")
    return journal


def test_an_agent_that_cannot_be_started_again_is_tried_again(nothing_in_folders: Path) -> None:
    with program("up") as process:
        assert process.stderr is not None
        exports(process)
        (agent,) = agents_of(process)
        journal = journal_of(nothing_in_folders)
        journal.rename(aside := journal.with_suffix(".aside"))
        journal.mkdir()
        os.kill(agent, signal.SIGKILL)
        said = [next(line for line in process.stderr if "tried again" in line)]
        journal.rmdir()
        aside.rename(journal)
        said.append(next(line for line in process.stderr if "serving accelerator" in line))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert "journal" in said[0] and "did not start" in said[0]


def test_a_device_that_nothing_can_move_is_one_clear_line() -> None:
    with program("up", "--slice", "trainers=nonesuch:0") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert len(err.strip().splitlines()) == 1 and "trainers" in err and "nonesuch:0" in err


def test_a_port_that_is_in_use(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = call("up", "--port", port)
    assert ended.code == 2, "as every option whose value cannot be used"
    assert f"port {port} " in ended.complaint and "Address already in use" in ended.complaint
    assert "--port" in ended.complaint and "doctor" not in ended.complaint


@pytest.mark.parametrize(("words", "pool"), [((), "mine"), (("--pool", "p"), "p")])
def test_the_pool_is_the_one_of_the_environment_unless_it_is_named(words: tuple[str, ...], pool: str) -> None:
    with program("up", *words, env={"SLICELOCK_POOL": "mine"}) as process:
        assert exports(process)["SLICELOCK_POOL"] == pool
        process.terminate()
        assert process.wait(30) == 0


def test_a_folder_that_cannot_be_made(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "SHARED_MEMORY", Path("/proc/nonesuch"))
    ended = call("up")
    assert ended.code == 3
    assert "/proc/nonesuch" in ended.complaint
