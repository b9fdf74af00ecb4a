"""How busy a simulated device is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slicelock.sim import SimDevice
from slicelock.sim.meter import Meter
from slicelock.sim.record import append
from tests.support.sim_device import CAPACITY, FakeTurn


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimDevice:
    monkeypatch.setenv("SLICELOCK_SIM_DIR", str(tmp_path))
    monkeypatch.setenv("SLICELOCK_SIM_CAPACITY", str(CAPACITY))
    made = SimDevice.open("0", create=True)
    made.admit("run-a", 1)
    return made


def test_a_use_counts_while_it_goes_on_and_after_its_end(device: SimDevice) -> None:
    meter = Meter(device)
    assert meter.busy() == 0
    with SimDevice.attach("sim:0").use(FakeTurn()):
        meter.busy()
        assert meter.busy() == 100
    meter.busy()
    assert meter.busy() == 0


def test_a_use_whose_process_was_killed_ends_with_its_turn(device: SimDevice) -> None:
    meter = Meter(device)
    append(
        device.record_path,
        "begin",
        {"run": "run-a", "fence": 1, "pid": 1, "start_ns": time.monotonic_ns()},
    )
    meter.busy()
    assert meter.busy() == 100
    device.admit("run-b", 2)
    assert meter.busy() == 0
