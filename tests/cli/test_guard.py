"""A guarded command ends with whoever asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slicelock import guard
from tests.support.wait import wait_until

# Starts a command under guard and is killed: argv are the guard and the command.
PARENT = """
import os, subprocess, sys
reader, writer = os.pipe()
guard = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), str(writer)]
subprocess.Popen([*guard, *sys.argv[2:]], pass_fds=[writer])
os.close(writer)
print(os.read(reader, 100).decode().strip(), flush=True)
sys.stdin.read()
"""


def start(*command: str) -> tuple[subprocess.Popen[bytes], str]:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(writer), *command],
        pass_fds=[writer],
    )
    os.close(writer)
    with open(reader) as status:  # noqa: PTH123 - a descriptor
        return process, status.read().strip()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids_in(path: Path, count: int) -> list[int]:
    wait_until(
        lambda: path.exists() and len(path.read_text().split()) >= count, what=f"{count} pids in {path}"
    )
    return [int(pid) for pid in path.read_text().split()]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_ends_with_the_commands_code(script: str, code: int) -> None:
    process, said = start("sh", "-c", script)
    assert said.isdigit()
    assert process.wait() == code


@pytest.mark.parametrize(
    ("command", "why"),
    [("/nonesuch", "No such file"), ("/etc/passwd", "Permission denied"), ("", "cannot be empty")],
)
def test_says_why_a_command_cannot_be_started(command: str, why: str) -> None:
    process, said = start(command)
    assert said.startswith("error ") and why in said
    assert process.wait() == guard.NOT_STARTED


def test_ends_the_command_and_everything_below_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process, _ = start(
        "sh", "-c", f"setsid sleep 600 & echo $! >> {pids}; sleep 600 & echo $! >> {pids}; wait"
    )
    below = pids_in(pids, 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert not [pid for pid in below if alive(pid)]


def test_ends_what_does_not_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    process, _ = start("sh", "-c", f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 1; done")
    (pid,) = pids_in(pids, 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 137
    assert not alive(pid)


def test_a_stopped_command_is_ended_too(tmp_path: Path) -> None:
    process, said = start("sleep", "600")
    os.kill(int(said), signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143


def test_the_command_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = ["sh", "-c", f"setsid sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; wait"]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, guard.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None and parent.stdout.readline().strip().isdigit()
        below = pids_in(pids, 2)
        parent.kill()
    wait_until(lambda: not [pid for pid in below if alive(pid)], what="the command to be gone")


def test_the_command_is_killed_with_its_guard() -> None:
    process, said = start("sleep", "600")
    process.kill()
    process.wait()
    wait_until(lambda: not alive(int(said)))


def test_signals_of_others_are_the_commands_business() -> None:
    process, said = start("sleep", "600")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        process.send_signal(number)
    os.kill(int(said), signal.SIGUSR1)
    assert process.wait() == 128 + signal.SIGUSR1


def test_the_command_starts_with_ordinary_signals(tmp_path: Path) -> None:
    status = tmp_path / "status"
    process, _ = start("sh", "-c", f"cat /proc/self/status > {status}")
    assert process.wait() == 0
    masks = dict(line.split(":\t") for line in status.read_text().splitlines() if line.startswith("Sig"))
    ignored = {number for number in signal.Signals if int(masks["SigIgn"], 16) >> (number - 1) & 1}
    ours = {number for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN}
    assert int(masks["SigBlk"], 16) == 0
    assert ignored <= ours - {signal.SIGPIPE, signal.SIGXFSZ}  # nohup's choice is kept, Python's is not


def test_the_command_gets_no_descriptor_of_the_guard() -> None:
    process, _ = start("sh", "-c", "test $(ls /proc/self/fd | wc -l) -le 4")  # ls has one for the folder
    assert process.wait() == 0
