"""The demo as a user starts it: what it shows, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from slicelock.scratch import scratch
from tests.support.wait import wait_until

COMMAND = [sys.executable, "-m", "slicelock", "demo"]
MARK = "DEMO_TEST_MARK"


class Demo:
    """A demo process. Everything it starts inherits a mark in its environment, which tells leftovers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.env = {**os.environ, MARK: self.mark, "TMPDIR": str(folder), "COLUMNS": "80", "LINES": "24"}
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self, *options: str, command: list[str] = COMMAND, out: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [*command, *options],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return self.process

    def processes(self) -> list[str]:
        """Every process with the mark, by its command line."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # it has just ended, or is not ours to see
        return found

    def nothing_is_left(self) -> None:
        """No process and no file; that /dev/shm is as before is looked at after every test."""
        assert self.processes() == []
        assert list(self.folder.iterdir()) == []


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    if made.process:
        made.process.kill()
        made.process.wait()
        if made.process.stdout:
            made.process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [pytest.param(2, marks=pytest.mark.alone), 3])
def test_the_demo_shows_what_it_promises(demo: Demo, jobs: int) -> None:
    process = demo.start("--json", f"--jobs={jobs}")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output.decode()
    demo.nothing_is_left()
    facts = json.loads(output)
    assert [one["job"] for one in facts["solo"]] == [f"digits-{number}" for number in range(1, jobs + 1)]
    assert all(one["accuracy"] > 0.8 for one in facts["solo"])
    assert facts["identical"] is True
    assert facts["violations"] == []
    assert facts["serial_wall_s"] == pytest.approx(sum(one["wall_s"] for one in facts["solo"]), abs=0.01)
    shared = facts["shared"]
    assert shared["turns"] >= shared["switches"] > 0
    assert shared["bytes_moved"] > 0
    assert shared["handoff_ms_p50"] > 0
    assert facts["kill_to_next_turn_s"] < 30  # a lease is 60 s: the agent has seen the death, not the lease
    if jobs == 2:  # nothing runs beside it
        assert shared["duty"] > max(one["duty"] for one in facts["solo"])
        assert 0 < facts["saved"] < 1


SMALL = ("--width=64", "--layers=1", "--batch=64", "--epochs=6")
ADDER = f"""
from slicelock.demo import run
from slicelock.demo.plays import adder
run(2, as_json=True, play=adder("sim:0", "no GPU", {SMALL}))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_demo_for_gpus_reports_the_same(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> None:
    demo.env |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("torch"))}
    process = demo.start(command=[sys.executable, "-c", ADDER])
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output.decode()
    demo.nothing_is_left()
    facts = json.loads(output)
    assert [one["job"] for one in facts["solo"]] == ["adder-1", "adder-2"]
    assert (facts["identical"], facts["violations"], facts["device"]) == (True, [], "no GPU")
    assert facts["shared"]["turns"] >= facts["shared"]["switches"] > 0
    assert facts["shared"]["duty"] > max(one["duty"] for one in facts["solo"])
    assert 0 < facts["kill_to_next_turn_s"] < 30
    assert 0 < facts["saved"] < 1


@pytest.mark.parametrize(
    ("number", "after_s"),
    [
        *((signal.SIGINT, after_s) for after_s in (0.0, 0.4, 1.0, 3.0, 6.0)),
        (signal.SIGTERM, 0.4),
        (signal.SIGTERM, 3.0),
    ],
)
def test_a_demo_that_is_stopped_leaves_nothing(demo: Demo, number: signal.Signals, after_s: float) -> None:
    process = demo.start()
    wait_until(demo.processes)
    start = time.monotonic()
    wait_until(lambda: time.monotonic() - start >= after_s)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode != 0
    assert b"Traceback" not in output or after_s < 1, output.decode()
    demo.nothing_is_left()


def test_a_demo_that_is_killed_leaves_no_process_and_the_next_no_file(demo: Demo) -> None:
    process = demo.start()
    wait_until(lambda: any("--slice=demo" in line for line in demo.processes()), 30)
    process.kill()
    process.wait()
    wait_until(lambda: demo.processes() == [])
    with scratch(demo.folder, "demo"), scratch(Path("/dev/shm"), "demo"):
        pass
    assert list(demo.folder.glob("slicelock-demo-*")) == []


def test_on_a_small_terminal_it_shows_who_has_the_slice(demo: Demo) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    seen = b""

    def look(pattern: bytes) -> bool:
        nonlocal seen
        with suppress(OSError):  # nothing yet, or the other end has closed
            seen += os.read(ours, 1 << 16)
        return re.search(pattern, seen) is not None

    process = demo.start(out=theirs)
    os.close(theirs)
    try:
        wait_until(lambda: look("● digits-1".encode()), 30)
        wait_until(lambda: look("█".encode()), 30)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    finally:
        os.close(ours)
    plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode()
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 80
    demo.nothing_is_left()
