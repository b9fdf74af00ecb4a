"""What goes on in a process whose state is saved: its other threads, and NCCL's own watch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from slicelock.bench.swap_driver import Driver
from tests.gpu.stage import ROOT

PARKED_S = 10.0
SOON_S = 0.5
SUM = 64 << 20
HEARTBEAT_S, NCCL_PARKED_S = 4, 20.0
MONITOR = {
    "TORCH_NCCL_ENABLE_MONITORING": "1",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(HEARTBEAT_S),
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000",
}


class Beating:
    """One `gpu_beats` process."""

    def __init__(self, folder: Path, *group: str, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir()
        self._beats = folder / "beats"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.gpu_beats", str(self._beats), *group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
        )
        self.pid = self._process.pid

    def __enter__(self) -> Beating:
        assert self.told() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def say(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, what: str) -> str:
        self.say(what)
        return self.told()

    def beats(self) -> int:
        return self._beats.stat().st_size

    def ended(self, patience: float) -> int | None:
        """Its exit code, if it ends within so many seconds."""
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_other_threads_go_on_unless_the_interpreters_lock_is_held(
    stack: ExitStack, tmp_path: Path, figures: Callable[..., None]
) -> None:
    ways = ("idle", "touch", "freeze")
    jobs = {way: stack.enter_context(Beating(tmp_path / way)) for way in ways}
    driver = stack.enter_context(Driver())
    for way, job in jobs.items():
        driver.out(job.pid)
        if way != "idle":
            job.say(way)
    time.sleep(SOON_S)
    before = {way: job.beats() for way, job in jobs.items()}
    time.sleep(PARKED_S)
    counted = {way: job.beats() - before[way] for way, job in jobs.items()}
    figures(parked_s=PARKED_S, beats=counted)
    assert min(counted["idle"], counted["touch"]) > 5 * PARKED_S
    assert counted["freeze"] == 0
    for job in jobs.values():
        driver.back(job.pid)
    assert (jobs["touch"].told(), jobs["freeze"].told()) == (str(SUM), "done")
    time.sleep(SOON_S)
    assert jobs["freeze"].beats() > before["freeze"]
    assert jobs["idle"].ask("touch") == str(SUM)


def test_nccls_monitor_lets_a_saved_process_live(
    stack: ExitStack, tmp_path: Path, figures: Callable[..., None]
) -> None:
    """It ends a process whose watchdog has not beaten for a while."""
    job = stack.enter_context(Beating(tmp_path / "job", "nccl", str(tmp_path), env=MONITOR))
    driver = stack.enter_context(Driver())
    assert job.ask("reduce") == "done"
    driver.out(job.pid)
    job.say("reduce")  # its main thread waits in the driver from here on
    assert job.ended(NCCL_PARKED_S) is None
    driver.back(job.pid)
    assert [job.told(), job.ask("sum"), job.ask("touch")] == ["done", str(SUM), str(SUM)]
    figures(heartbeat_s=HEARTBEAT_S, parked_s=NCCL_PARKED_S, lives=True)
