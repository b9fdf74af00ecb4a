"""A simulated device in a test's own process, used by a turn that needs no Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from slicelock.sim import Record, SimDevice

CAPACITY = 65_536


@dataclass(frozen=True)
class FakeTurn:
    run: str = "run-a"
    fences: Mapping[str, int] = field(default_factory=lambda: {"s": 1})


def fill(device: SimDevice, value: int, turn: FakeTurn | None = None) -> np.ndarray:
    """An array of 4000 bytes in device memory, full of `value`."""
    with device.use(turn or FakeTurn()):
        array = device.array(1000)
        array[:] = value
    return array


def record(device: SimDevice) -> Record:
    return Record.load(device.record_path)


def full(*_: object) -> None:
    """Instead of `os.posix_fallocate`."""
    raise OSError(28, "No space left on device")
