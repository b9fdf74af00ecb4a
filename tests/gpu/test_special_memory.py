"""What the driver's checkpoint makes of managed memory, exported descriptors and a profiler that is on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from slicelock.bench.swap_driver import Driver
from tests.gpu.stage import ROOT


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("profiled", {"lock": 801}),
        ("exported", {"lock": 0, "save": 0, "restore": 0, "unlock": 0}),
        ("managed", {"lock": 0, "save": 801, "unlock": 0}),
    ],
)
def test_a_process_goes_on_whatever_the_driver_makes_of_it(
    figures: Callable[..., None], kind: str, codes: dict[str, int]
) -> None:
    """The calls and codes are what driver 580 gives; a process is as it was after each."""
    command = [sys.executable, "-m", "tests.support.gpu_special", kind]
    with (
        Driver() as driver,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as job,
    ):
        assert job.stdin is not None
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "ready\n"
            told = {op: driver.call(job.pid, op)["code"] for op in codes}
            assert driver.call(job.pid, "state")["value"] == "running"
            job.stdin.write("go\n")
            job.stdin.flush()
            assert job.stdout.readline() == "right\n"
            figures(kind=kind, codes=told)
            assert told == codes
        finally:
            job.kill()
