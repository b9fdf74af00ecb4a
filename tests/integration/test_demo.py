"""The demo as a user starts it: what it shows, and that nothing of it stays."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from slicelock.scratch import scratch
from tests.support.demo import Demo
from tests.support.wait import wait_until


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    with Demo(tmp_path) as made:
        yield made


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
    facts = demo.report(command=[sys.executable, "-c", ADDER])
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
    wait_until(lambda: any("--slice=demo" in line for line in demo.processes()), 90)
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
        wait_until(lambda: look("● digits-1".encode()), 90)
        wait_until(lambda: look("█".encode()), 90)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    finally:
        os.close(ours)
    plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode()
    assert max(len(line) for line in re.split(r"[\r\n]+", plain)) <= 80
    demo.nothing_is_left()
