"""The devices of this process, each with its pool of host memory."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slicelock.hooks.torch_offload.device import Machine
from slicelock.hooks.torch_offload.inventory import ByDevice
from slicelock.hooks.torch_offload.layout import Place, arrange, room_needed
from slicelock.hooks.torch_offload.pool import SETTING, HostPool
from slicelock.hooks.torch_offload.transfer import Mover, await_end_of
from slicelock.host_memory import readable

log = logging.getLogger("slicelock")

NOTABLE = 256 << 20
"""Bytes of other tensors on a device that are worth a look and a word."""


class Fleet:
    """Movers by device index, made when first needed."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._movers: dict[int, Mover] = {}
        self._others = 0  # bytes of other tensors that were there the last time

    def mover(self, index: int) -> Mover:
        """The mover of a device. ConfigurationError where tensors cannot be moved."""
        if index not in self._movers:
            device, memory = self._machine.device(index), self._machine.memory(index)
            pool = HostPool(memory, device, self._machine.allowance, block=self._machine.block)
            self._movers[index] = Mover(device, pool, self._machine.guard, self._machine.chunk)
        return self._movers[index]

    @property
    def pool_bytes(self) -> int:
        """Host memory that is pinned now."""
        return sum(mover.pool.ready for mover in self._movers.values())

    @property
    def reasons(self) -> str:
        """Why pools do not grow, if they do not."""
        return "; ".join(sorted({mover.pool.reason for mover in self._movers.values()} - {""}))

    def foresee(self, found: ByDevice) -> None:
        """Have the pools grow for these, in the background."""
        for index, places in found.items():
            self.mover(index).pool.ahead(room_needed(places))

    def settle(self, timeout: float | None) -> bool:
        """Wait until nothing is being pinned; whether that came in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pools = [mover.pool for mover in list(self._movers.values())]
        return all(pool.settle(None if deadline is None else deadline - time.monotonic()) for pool in pools)

    def assign(self, found: ByDevice, dropped: Mapping[int, Sequence[Place]]) -> tuple[ByDevice, int]:
        """Give places in the pools; all that is to leave, by device, and the bytes that have no place."""
        self.foresee(found)
        assigned: ByDevice = {}
        left = 0
        for index in found.keys() | dropped.keys():
            places = found.get(index, [])
            kept, without = arrange(places, self.mover(index).pool.ensure(room_needed(places)))
            left += sum(place.nbytes for place in without)
            if together := sorted([*kept, *dropped.get(index, ())], key=lambda place: place.address):
                assigned[index] = together
        if left and assigned:
            log.warning(
                "%s of tensors do not fit into the host pool (%s) and stay on the device for the next way to "
                "move them; raise %s or the memory there is",
                readable(left),
                self.reasons or "it is full",
                SETTING,
            )
        return assigned, left

    def on_all(self, places: ByDevice, work: Callable[[int, Mover, list[Place]], None]) -> None:
        """Do it for every device at once. The first failure, also to begin, is raised when all have ended."""
        failures: list[BaseException] = []

        def one(index: int, those: list[Place]) -> None:
            try:
                with self._movers[index].device.entered():
                    work(index, self._movers[index], those)
            except BaseException as failure:  # noqa: BLE001 - raised below, in the caller's thread
                failures.append(failure)

        *others, last = places.items()
        threads = [threading.Thread(target=one, args=each, name="slicelock-device") for each in others]
        try:
            for thread in threads:
                thread.start()  # RuntimeError at the limit of threads
            one(*last)
        finally:
            await_end_of(threads)
        if failures:
            raise failures[0]

    def withdraw(self, places: ByDevice) -> None:
        """Have all of these off the devices."""
        for index, those in places.items():
            self._movers[index].withdraw([place for place in those if not place.away])

    def look_for_others(self, indices: Sequence[int], left: int) -> None:
        """Other tensors on the devices: perhaps garbage that keeps them, else worth a word, once."""
        devices: list[Any] = [self._movers[index].device for index in indices]
        others = sum(device.in_use() for device in devices) - left
        if others > self._others + NOTABLE:
            gc.collect()
            for device in devices:
                device.give_back()
            others = sum(device.in_use() for device in devices) - left
        if others > self._others + NOTABLE:
            names = ", ".join(device.name for device in devices)
            log.warning("%s of tensors that TorchOffload was not given stay on %s", readable(others), names)
        self._others = max(0, others)

    def close(self) -> None:
        """Give the pinned memory back; the first failure is raised when all pools have been asked to."""
        failures: list[Exception] = []
        for index, mover in list(self._movers.items()):
            try:
                mover.pool.close()
            except Exception as failure:  # noqa: BLE001 - raised below
                failures.append(failure)
            else:
                del self._movers[index]
        if failures:
            raise failures[0]
