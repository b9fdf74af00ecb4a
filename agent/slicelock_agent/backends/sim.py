"""The `sim` backend: moves a run's bytes off simulated devices and back, from outside and without the job's
help.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slicelock.errors import SlicelockError
from slicelock.exits import UsageError
from slicelock.host_memory import groups_of
from slicelock.keys import check_name
from slicelock.paths import is_there
from slicelock.sim import SimDevice, files
from slicelock.sim.meter import Meter
from slicelock_agent.backends.base import BackendContext, Estimate, Owed, Report, Subject, Truth

RATE = 200e6
"""Bytes per second that a slow machine copies at least, for deadlines."""


class SimBackend:
    """Simulated devices. A device has one run's state at a time, and an image is a file in shared memory.

    Bytes cannot be copied for longer than they take, so the only thing to wait for is a use that has not
    ended; how long is the device's decision, and shorter than any deadline.
    """

    name = "sim"
    exclusive = True

    def __init__(self, context: BackendContext) -> None:
        settings = context.settings
        self._settings = settings
        self._chosen = "sim_dir" in settings.model_fields_set
        self._images = settings.sim_dir / "images" / settings.pool / settings.node
        self._groups = groups_of("self")  # asked once: a hand-over takes few milliseconds
        self._devices: dict[str, SimDevice] = {}
        self._made: set[str] = set()
        self._retired: set[str] = set()
        self._meters: dict[str, Meter] = {}

    def claims(self, device: str) -> bool:
        return device.startswith("sim:")

    def resolve(self, devices: Sequence[str]) -> tuple[str, ...]:
        for device in devices:
            check_name("device", device.removeprefix("sim:"), UsageError)
        return tuple(devices)

    def preflight(self, devices: Sequence[str]) -> list[str]:
        problems: list[str] = []
        for device in devices:
            try:
                self._device(device)
            except SlicelockError as failure:
                problems.append(str(failure))
        return problems

    def lock_file(self, device: str) -> Path:
        return self._settings.sim_dir / f"{device.removeprefix('sim:')}.lock"

    # ------------------------------------------------------------ what is there

    def used(self, devices: Sequence[str]) -> int:
        return sum(self._device(device).used for device in devices)

    def found(self, devices: Sequence[str]) -> tuple[str, int]:
        owners = [self._device(device).owner for device in devices]
        runs = {owner.run for owner in owners if owner.run}
        return runs.pop() if len(runs) == 1 else "", max((owner.fence for owner in owners), default=0)

    def estimate(self, subject: Subject, *, told: bool = False) -> Estimate:
        """Images are files that the agent writes, so that they count as its own memory."""
        size = self.used(subject.devices)
        return Estimate(size, size, size / RATE, dict.fromkeys(self._groups, size))

    def facts(self, devices: Sequence[str]) -> dict[str, Any]:
        opened = {device: self._device(device) for device in devices}
        return {
            device: {"used": one.used, "total": one.capacity, "busy": self._meter(one).busy()}
            for device, one in opened.items()
        }

    def _meter(self, device: SimDevice) -> Meter:
        return self._meters.setdefault(device.name, Meter(device))

    def objection(self, subject: Subject, *, hooked: bool = False, begun: bool = False) -> str:
        return ""

    def waits(self, pid: int) -> bool:
        return False

    def lacks_room(self, subject: Subject, at_least: int = 0) -> str:
        for device in subject.devices:
            owner, used = self._device(device).owner, self._device(device).used
            if used and owner.run != subject.run:
                return f"{device} still has {used} bytes of {owner.run or 'an unknown run'}"
            if (free := self._device(device).capacity - used) < at_least:
                return f"{device} has {free} bytes free, {at_least} are needed"
        return ""

    def company(self, devices: Sequence[str]) -> str:
        return ""

    async def left(self, subject: Subject, allowed: int, others: Mapping[int, int] | None = None) -> str:
        used = self.used(subject.devices)
        return f"{used} bytes are still in use on {', '.join(subject.devices)}" if used > allowed else ""

    async def strays(self, subject: Subject, deadline: float) -> Truth:
        return Truth.ABSENT  # `found` tells

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        return self._truth(subject)

    def _truth(self, subject: Subject) -> Truth:
        """Images appear whole, all of them before anything is poisoned, and stay until they are discarded. A
        device that had nothing has an empty one, so that a missing one is noticed.
        """
        images = [_size(self._image(subject, device)) for device in subject.devices]
        saved = Truth.SAVED if None not in images else Truth.LOST
        full = [self._device(device).used > 0 for device in subject.devices]
        owners = {self._device(d).owner.run for d, used in zip(subject.devices, full, strict=True) if used}
        if not any(full):
            return saved if any(size is not None for size in images) else Truth.ABSENT
        if owners - {subject.run, ""}:
            return saved
        emptied = any(image and not used for image, used in zip(images, full, strict=True))
        return Truth.PARTIAL if emptied or "" in owners else Truth.LOADED

    # ------------------------------------------------------------ moving

    async def lock(self, subject: Subject, deadline: float) -> Report:
        return Report()  # a use holds the device's file; saving waits for it

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def save(self, subject: Subject, deadline: float) -> Report:
        return await asyncio.to_thread(self._save, subject)

    async def restore(self, subject: Subject, deadline: float) -> Report:
        return await asyncio.to_thread(self._restore, subject)

    def _save(self, subject: Subject) -> Report:
        """All images first, then poison: as long as an image is missing nothing has been destroyed."""
        moved = 0

        def copy(device: SimDevice, image: Path) -> None:
            nonlocal moved
            if image.exists():
                return
            if device.used:
                moved += device.save_to(image)
            else:
                image.touch(mode=0o600)

        def clear(device: SimDevice, image: Path) -> None:
            if device.used:
                device.poison()

        self._image(subject, subject.devices[0]).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        failures = self._each(subject, copy)
        return Report(moved, failures or self._each(subject, clear))

    def _restore(self, subject: Subject) -> Report:
        moved = 0

        def copy(device: SimDevice, image: Path) -> None:
            nonlocal moved
            if _size(image) and not device.used:
                moved += device.restore_from(image)

        if self._truth(subject) in (Truth.ABSENT, Truth.LOST):
            return Report(failures={subject.image: "its image is gone"})
        failures = self._each(subject, copy)
        return Report(moved, failures)

    def _each(self, subject: Subject, do: Callable[[SimDevice, Path], None]) -> dict[str, str]:
        failures: dict[str, str] = {}
        for device in subject.devices:
            try:
                do(self._device(device), self._image(subject, device))
            except (SlicelockError, OSError) as failure:
                failures[device] = str(failure)
        return failures

    # ------------------------------------------------------------ letting in, letting go

    def admit(self, subject: Subject) -> None:
        for device in map(self._device, subject.devices):
            owner = device.owner
            if not (owner.admitted and (owner.run, owner.fence) == (subject.run, subject.fence)):
                device.admit(subject.run, subject.fence)

    def owed(self, subject: Subject, others: Mapping[int, int] | None = None) -> Owed:
        return Owed()  # what is on a simulated device goes when it is wiped

    async def wipe(self, devices: Sequence[str], owed: Owed | None = None) -> None:
        for device in devices:
            await asyncio.to_thread(self._device(device).poison)

    async def discard(self, subject: Subject) -> None:
        self._remove((self._images / subject.slice).glob(f"{subject.image}:*"))

    def images(self, slice_name: str) -> set[str]:
        return {path.name.rpartition(":")[0] for path in (self._images / slice_name).glob("*:*")}

    def retire(self, devices: Sequence[str]) -> None:
        self._retired.update(devices)

    def close(self, *, undo: bool = False) -> None:
        for device in self._devices.values():
            device.close()
        self._devices.clear()
        files = self._files if undo else self._idle_files
        for name in self._made if undo else self._retired:
            for path in files(name):
                path.unlink(missing_ok=True)
        self._prune_folders()

    def _files(self, device: str) -> list[Path]:
        lock = self.lock_file(device)
        return [lock.with_suffix(".mem"), lock.with_suffix(".record.jsonl"), lock]

    def _idle_files(self, device: str) -> list[Path]:
        """What a retired device need not keep: nothing, while a job has it open; its record stays in a folder
        that somebody has chosen, as evidence."""
        memory, record, lock = self._files(device)
        if files.mapped(memory):
            return []
        return [memory, lock] if self._chosen else [memory, record, lock]

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def _prune_folders(self) -> None:
        if not is_there(self._settings.sim_dir):
            return
        for folder in (
            *self._images.glob("*"),
            self._images,
            self._images.parent,
            self._images.parent.parent,
            *([] if self._chosen else [self._settings.sim_dir]),
        ):
            try:
                os.rmdir(folder)  # noqa: PTH106 - only when it is empty
            except OSError:
                continue

    def _device(self, device: str) -> SimDevice:
        if device not in self._devices:
            if not is_there(self._settings.sim_dir / f"{device.removeprefix('sim:')}.mem"):
                self._made.add(device)
            self._devices[device] = SimDevice.open(device, create=True, settings=self._settings)
        return self._devices[device]

    def _image(self, subject: Subject, device: str) -> Path:
        return self._images / subject.slice / f"{subject.image}:{device.removeprefix('sim:')}"


def _size(image: Path) -> int | None:
    """Bytes of an image; None when there is none."""
    return image.stat().st_size if image.exists() else None
