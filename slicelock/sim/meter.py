"""How busy a simulated device is, as NVML tells of a GPU."""

from __future__ import annotations

import time
from dataclasses import replace

from slicelock.sim.device import SimDevice
from slicelock.sim.record import Record, RecordReader, Use


class Meter:
    """Looks at a device's record now and then. What was there before the first look counts for nothing."""

    def __init__(self, device: SimDevice) -> None:
        self._device = device
        self._record = RecordReader.from_now(device.record_path)
        self._looked_ns = time.monotonic_ns()

    def busy(self) -> int:
        """Percent of the time since the last look in which the device was used."""
        now, since = time.monotonic_ns(), self._looked_ns
        uses = (self._until(use, now) for use in self._record.read().uses)
        self._looked_ns = now
        self._record.forget(now)
        return round(100 * Record(uses=tuple(uses)).duty(since, now))

    def _until(self, use: Use, now: int) -> Use:
        """A use that goes on ends now, unless its turn is over: then its process was killed in it."""
        owner = self._device.owner
        goes_on = use.end_ns is None and owner.admitted and (owner.run, owner.fence) == (use.run, use.fence)
        return replace(use, end_ns=now) if goes_on else use
