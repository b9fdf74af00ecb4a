"""`slicelock run`: environment and identity, held slices, signals, and what kills do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import redis

from slicelock.cli.child import GuardedCommand
from slicelock.cli.failures import ExitCode
from slicelock.picture import Picture, SliceView
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Acquire, Declare, Revoke, Status, Yield
from tests.cli.programs import alive, program
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

SLICE = "lic"


class Pool:
    """The pool as an operator sees it."""

    def __init__(self) -> None:
        self.store = Store(StoreSettings.load())
        assert self.store.run(Declare(SLICE, {})).outcome == "OK"

    @property
    def slice(self) -> SliceView:
        return Picture.of("", self.store.run(Status()).picture).slices[0]

    @property
    def idle(self) -> bool:
        """Nobody holds and nobody waits."""
        return self.slice.state == "free" and not self.slice.queued

    def take(self) -> None:
        """Another run holds the slice."""
        other = Acquire("other", "other", "main", 1, "0", 1, (SLICE,), "o:0:1:0", 60_000, 60_000)
        assert self.store.run(other).outcome == "HELD"

    def give(self) -> None:
        """The other run yields."""
        assert self.store.run(Yield("other", "main", 1, "0")).outcome == "YIELDED"


@pytest.fixture
def seen(slicelock_env: dict[str, str], server: object) -> Iterator[Pool]:
    pool = Pool()
    yield pool
    wait_until(lambda: pool.idle, what="the slice to be free")
    pool.store.close()


def hold(*command: str, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    return ("run", "--slice", SLICE, "--hold", *options, "--", *command)


def said(process: subprocess.Popen[str]) -> str:
    """The next line of the command."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str], timeout: float = 20) -> tuple[str, str]:
    return process.communicate(timeout=timeout)


# ---------------------------------------------------------------- without --hold

SHOW = (
    "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('SLICELOCK_')}))"
)


def test_gives_the_command_its_run_and_environment(slicelock_env: dict[str, str]) -> None:
    with program("run", "--job", "baseline", "--", sys.executable, "-c", SHOW) as process:
        pid = process.pid
        out, err = finish(process)
    given = json.loads(out)
    assert (process.returncode, err) == (0, "")
    assert (given["SLICELOCK_JOB"], given["SLICELOCK_POOL"]) == ("baseline", slicelock_env["SLICELOCK_POOL"])
    assert given["SLICELOCK_RUN"].startswith("baseline-")
    assert "SLICELOCK_MODE" not in given
    assert not alive(pid)


def test_a_run_that_has_a_name_keeps_it(slicelock_env: dict[str, str]) -> None:
    with program("run", "--", sys.executable, "-c", SHOW, env={"SLICELOCK_RUN": "r7"}) as process:
        assert json.loads(finish(process)[0])["SLICELOCK_RUN"] == "r7"


def test_each_launch_is_a_run_of_its_own(slicelock_env: dict[str, str]) -> None:
    runs = set()
    for _ in range(2):
        with program("run", "--", sys.executable, "-c", SHOW) as process:
            runs.add(json.loads(finish(process)[0])["SLICELOCK_RUN"])
    assert len(runs) == 2


def test_several_members_are_one_run(slicelock_env: dict[str, str]) -> None:
    with program("run", "--", sys.executable, "-c", SHOW, env={"SLICELOCK_MEMBERS": "4"}) as process:
        assert json.loads(finish(process)[0])["SLICELOCK_RUN"]


def test_a_slice_is_told_to_the_command_if_there_is_one(seen: Pool) -> None:
    with program("run", "--slice", SLICE, "--", sys.executable, "-c", SHOW) as process:
        assert json.loads(finish(process)[0])["SLICELOCK_SLICE"] == SLICE
    with program("run", "--slice", "nonesuch", "--", "true") as process:
        out, err = finish(process)
    assert (process.returncode, out) == (ExitCode.NOT_GRANTED, "") and "no slice 'nonesuch'" in err


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_commands_own(seen: Pool, script: str, code: int) -> None:
    with program(*hold("sh", "-c", script)) as process:
        assert finish(process) == ("", "")
    assert process.returncode == code


def test_without_hold_it_becomes_the_command(slicelock_env: dict[str, str]) -> None:
    with program("run", "--", "sh", "-c", "echo $$; exit 3") as process:
        assert finish(process) == (f"{process.pid}\n", "")
    assert process.returncode == 3


@pytest.mark.parametrize("holding", [False, True])
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/nonesuch/program", "No such file"),
        ("nonesuch-program", "No such file"),
        ("/etc/passwd", "Permission denied"),
        ("/etc", "it is a directory"),
        ("", "it has no name"),
    ],
)
def test_a_command_that_cannot_be_started(seen: Pool, holding: bool, command: str, why: str) -> None:
    with program(*(hold(command) if holding else ("run", "--", command))) as process:
        out, err = finish(process)
    assert (process.returncode, out) == (ExitCode.OTHER, "")
    assert len(err.splitlines()) == 1 and command in err and why in err and "--" in err


def test_a_command_that_is_not_there_is_told_before_the_wait(seen: Pool) -> None:
    seen.take()
    with program(*hold("/nonesuch/program")) as process:
        _, err = finish(process)
    assert process.returncode == ExitCode.OTHER and "/nonesuch/program" in err
    seen.give()


def test_a_command_without_a_path_is_found(slicelock_env: dict[str, str], tmp_path: Path) -> None:
    tool = tmp_path / "own-tool"
    tool.write_text("#!/bin/sh\necho found\n")
    tool.chmod(0o755)
    path = f"/nonesuch:{tmp_path}:{os.environ['PATH']}"
    with program("run", "--", "own-tool", env={"PATH": path}) as process:
        assert finish(process) == ("found\n", "")


def test_with_mode_off_it_is_only_the_command() -> None:
    with program(*hold("echo", "hello"), env={"SLICELOCK_MODE": "off"}) as process:
        assert finish(process) == ("hello\n", "")


# ---------------------------------------------------------------- with --hold


def test_holds_the_slice_while_the_command_runs(seen: Pool) -> None:
    with program(
        *hold("sh", "-c", "echo $SLICELOCK_MODE; exec sleep 600", options=("--phase", "train"))
    ) as process:
        assert said(process) == "off"
        holder = seen.slice.holder
        assert holder is not None
        assert (holder.job, holder.phase, holder.state) == ("job", "train", "held")
        process.terminate()
        finish(process)
    assert process.returncode == 128 + signal.SIGTERM


def test_gives_it_back_at_the_end_of_the_command(seen: Pool) -> None:
    with program(*hold("true")) as process:
        assert finish(process) == ("", "")
        assert process.returncode == 0
        assert seen.idle


def test_waits_for_its_turn(seen: Pool) -> None:
    seen.take()
    with program(*hold("echo", "begun")) as process:
        wait_until(lambda: seen.slice.queued == 1, what="the request to be queued")
        seen.give()
        out, err = finish(process)
    assert out == "begun\n" and err in ("", f"slicelock: waiting for {SLICE}\n")


def test_no_turn_in_time(seen: Pool) -> None:
    seen.take()
    with program(*hold("echo", "never", options=("--timeout", "0.2"))) as process:
        out, err = finish(process)
    assert (process.returncode, out) == (ExitCode.NOT_GRANTED, "")
    assert SLICE in err and "within 0.2 s" in err and len(err.splitlines()) == 1
    seen.give()


def test_no_such_slice(seen: Pool) -> None:
    with program("run", "--slice", "nonesuch", "--hold", "--", "true") as process:
        _, err = finish(process)
    assert process.returncode == ExitCode.NOT_GRANTED
    assert "nonesuch" in err and "slicelock slice" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting_and_leaves_nothing(seen: Pool, number: signal.Signals) -> None:
    seen.take()
    with program(*hold("echo", "never")) as process:
        wait_until(lambda: seen.slice.queued == 1, what="the request to be queued")
        process.send_signal(number)
        out, _ = finish(process)
    assert (process.returncode, out) == (128 + number, "")
    assert seen.slice.queued == 0
    seen.give()


TRAP = "trap 'echo got {0}; exit 9' {0}; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "USR2"])
def test_signals_are_passed_on(seen: Pool, name: str) -> None:
    with program(*hold("sh", "-c", TRAP.format(name))) as process:
        assert said(process) == "ready"
        process.send_signal(getattr(signal, f"SIG{name}"))
        out, err = finish(process)
    assert (process.returncode, out, err) == (9, f"got {name}\n", "")


def test_stopped_and_continued_it_passes_on_only_what_was_sent(seen: Pool) -> None:
    with program(*hold("sh", "-c", TRAP.format("USR1"))) as process:
        assert said(process) == "ready"
        process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 0.5
        wait_until(lambda: time.monotonic() > until, what="a while to pass")
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGUSR1)
        out, err = finish(process)
    assert (process.returncode, out, err) == (9, "got USR1\n", "")


def test_a_signal_after_the_end_goes_nowhere() -> None:
    command = GuardedCommand.start(["sleep", "600"], {**os.environ})
    with command.guard:
        pidfd = command.pidfd
        command.close()
        command.send(signal.SIGTERM)
        command.close()
        command.end()
    assert pidfd is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)


async def test_the_end_of_a_killed_guard_is_told_as_shells_do() -> None:
    command = GuardedCommand.start(["sleep", "600"], {**os.environ})
    command.guard.kill()
    assert await command.wait() == 128 + signal.SIGKILL
    command.close()


def test_a_command_that_ignores_a_signal_goes_on(seen: Pool) -> None:
    script = "trap '' TERM; echo ready; while [ ! -e $0 ]; do sleep 0.05; done; exit 4"
    flag = Path(f"/tmp/slicelock-test-{os.getpid()}")
    try:
        with program(*hold("sh", "-c", script, str(flag))) as process:
            assert said(process) == "ready"
            process.terminate()
            assert seen.slice.state == "held"
            flag.touch()
            assert (finish(process)[1], process.returncode) == ("", 4)
    finally:
        flag.unlink(missing_ok=True)


def test_a_lost_turn_ends_the_command(seen: Pool) -> None:
    with program(*hold("sh", "-c", "echo $$; sleep 600 & wait")) as process:
        pid = int(said(process))
        holder = seen.slice.holder
        assert holder is not None
        seen.store.run(Revoke(holder.id, "maintenance"))
        _, err = finish(process)
    assert process.returncode == ExitCode.TURN_LOST
    assert "maintenance" in err and len(err.strip().splitlines()) == 1
    assert not alive(pid)


def test_rights_that_are_taken_meanwhile_are_no_end(seen: Pool, client: redis.Redis) -> None:
    """Nor a password that is changed: the command goes on, and its code counts."""
    with program(*hold("sh", "-c", TRAP.format("USR1"))) as process:
        assert said(process) == "ready"
        holder = seen.slice.holder
        assert holder is not None
        client.execute_command("ACL", "SETUSER", "default", "-evalsha", "-eval")
        try:
            process.send_signal(signal.SIGUSR1)
            out, _ = finish(process)
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")
            seen.store.run(Revoke(holder.id))
    assert (process.returncode, out) == (9, "got USR1\n")


def test_killed_it_takes_the_command_along(seen: Pool, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with program(
        *hold("sh", "-c", f"setsid sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; echo ok; wait")
    ) as process:
        assert said(process) == "ok"
        below = [int(pid) for pid in pids.read_text().split()]
        process.kill()
        process.wait()
        wait_until(lambda: not [pid for pid in below if alive(pid)], what="the command to be gone")
        holder = seen.slice.holder
        assert holder is not None  # without an agent only the lease ends it
        seen.store.run(Revoke(holder.id, "the test is over"))


def test_the_command_is_registered_by_its_own_identity(seen: Pool, client: object, pool: str) -> None:
    with program(*hold("sh", "-c", "echo $$; exec sleep 600")) as process:
        pid = int(said(process))
        known = f"slicelock:{{{pool}}}:process:*:{pid}:*"
        wait_until(lambda: client.keys(known), what="the command to be known")
        process.terminate()
        finish(process)
    assert client.keys(known) == []


# ---------------------------------------------------------------- until a health URL answers


class Health(BaseHTTPRequestHandler):
    """Answers what the test wants."""

    status = 503

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def health() -> Iterator[tuple[str, Callable[[int], None]]]:
    """A URL, and what sets its answer."""
    handler = type("OwnHealth", (Health,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/health", lambda status: setattr(handler, "status", status)
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_slice_is_given_back_when_the_url_answers(
    seen: Pool, health: tuple[str, Callable[[int], None]]
) -> None:
    url, answer = health
    with program(*hold("sh", "-c", "echo ready; exec sleep 600", options=("--until", url))) as process:
        assert said(process) == "ready"
        assert seen.slice.state == "held"
        answer(200)
        wait_until(lambda: seen.idle, what="the slice to be free")
        assert process.poll() is None
        process.terminate()
        _, err = finish(process)
    assert process.returncode == 143
    assert err == f"slicelock: {url} answers; {SLICE} given back\n"


def test_a_command_that_ends_before_the_url_answers(
    seen: Pool, health: tuple[str, Callable[[int], None]]
) -> None:
    with program(*hold("sh", "-c", "exit 5", options=("--until", health[0]))) as process:
        assert finish(process) == ("", "")
    assert process.returncode == 5
