"""What a person sees and does at a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import ioctl

import pytest

from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Acquire, Declare
from tests.cli.programs import SLICELOCK
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server


class Terminal:
    """A terminal of some width with a program in it."""

    def __init__(self, *words: str, columns: int = 100) -> None:
        self._end, inner = pty.openpty()
        ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            [*SLICELOCK, *words],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": ""},
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call, no lock is taken
        )
        os.close(inner)
        self.seen = ""

    def read(self, timeout: float = 0.05) -> str:
        """What is on the screen so far."""
        while select.select([self._end], [], [], timeout)[0]:
            try:
                self.seen += os.read(self._end, 65536).decode(errors="replace")
            except OSError:  # everything that had the terminal is gone
                break
        return self.seen

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.read(0), what=f"{text!r} in {self.seen!r}")

    def type(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def finish(self) -> int:
        """Wait for the program's end; its exit code."""
        deadline = time.monotonic() + 20
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.seen!r}"
            self.read()
        self.read(0)
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal."""
        end, self._end = self._end, -1
        os.close(end)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._end >= 0:
            self.hang_up()


@contextmanager
def terminal(*words: str, columns: int = 100) -> Generator[Terminal]:
    made = Terminal(*words, columns=columns)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def store(slicelock_env: dict[str, str]) -> Generator[Store]:
    """The pool, with a slice."""
    made = Store(StoreSettings.load())
    made.run(Declare("lic", {}))
    yield made
    made.close()


def test_status_fits_the_terminal(store: Store) -> None:
    for number in range(4):
        store.run(
            Acquire(
                f"r{number}",
                "a-job-with-a-long-name",
                "main",
                1,
                "0",
                1,
                ("lic",),
                f"p{number}:0:1:0",
                60_000,
                60_000,
            )
        )
    with terminal("status", columns=72) as screen:
        assert screen.finish() == 0
        lines = [line for line in screen.seen.replace("\r", "").split("\n") if line]
    plain = [without_colours(line) for line in lines]
    assert max(map(len, plain)) <= 72
    assert any("a-job-wit…ong-name" in line for line in plain) and "\x1b[" in screen.seen


def without_colours(line: str) -> str:
    """A line without its colours."""
    out, inside = "", False
    for char in line:
        if char == "\x1b":
            inside = True
        elif inside:
            inside = not char.isalpha()
        else:
            out += char
    return out


def test_an_error_is_one_line(store: Store) -> None:
    with terminal("status", "nonesuch", columns=200) as screen:
        assert screen.finish() == 1
        assert len(screen.seen.strip().splitlines()) == 1


def test_ctrl_c_reaches_a_held_command_once(store: Store) -> None:
    script = (
        "trap 'echo got; n=x$n' INT; echo ready; while [ ! \"$n\" ]; do sleep 0.05; done; sleep 0.3; exit 7"
    )
    with terminal("run", "--slice", "lic", "--hold", "--", "sh", "-c", script) as screen:
        screen.wait_for("ready")
        screen.type("\x03")
        assert screen.finish() == 7
        assert screen.seen.count("got") == 1


def test_a_terminal_that_is_closed_ends_a_held_command(store: Store) -> None:
    """Its program is the session's leader here, as under ssh and tmux: nobody else hears that it hangs up."""
    with terminal("run", "--slice", "lic", "--hold", "--", "sh", "-c", "echo ready; exec sleep 60") as screen:
        screen.wait_for("ready")
        screen.hang_up()
        assert screen.process.wait(20) == 128 + signal.SIGHUP


def test_ctrl_c_while_waiting_leaves_nothing(store: Store) -> None:
    other = Acquire("o", "o", "main", 1, "0", 1, ("lic",), "o:0:1:0", 60_000, 60_000)
    assert store.run(other).outcome == "HELD"
    with terminal("run", "--slice", "lic", "--hold", "--", "true") as screen:
        screen.wait_for("slicelock: waiting for lic")
        screen.type("\x03")
        assert screen.finish() == 128 + signal.SIGINT


def test_a_held_command_can_read_the_terminal(store: Store) -> None:
    with terminal(
        "run", "--slice", "lic", "--hold", "--", "sh", "-c", "echo name?; read n; echo hello $n"
    ) as screen:
        screen.wait_for("name?")
        screen.type("you\n")
        assert screen.finish() == 0
        assert "hello you" in screen.seen


def test_a_bench_shows_what_it_does() -> None:
    with terminal("bench", "queue", "--waiters", "2,20") as screen:
        assert screen.finish() == 0
        assert ("round" in screen.seen and "reached" in screen.seen) or "missed" in screen.seen


def test_ctrl_c_in_a_bench_leaves_no_traceback() -> None:
    with terminal("bench", "queue", "--waiters", "2,15000") as screen:
        screen.wait_for("filling")
        screen.type("\x03")
        assert screen.finish() == 130
        assert "Traceback" not in screen.seen
