"""The devices of this node's slices: read from the command line, held against every other agent of the
machine.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from slicelock.errors import BackendUnavailable, ConfigurationError
from slicelock.exits import UsageError
from slicelock.keys import check_name
from slicelock_agent.backends.base import Accelerator, Backend
from slicelock_agent.locks import TakenError, lock, sign

EXAMPLE = "for example --slice trainers=sim:0"


def parse_slices(options: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read `NAME=DEVICE,DEVICE…` options; UsageError names what is wrong."""
    slices: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        devices = tuple(part.strip() for part in text.split(",") if part.strip())
        if not equals or not devices:
            raise UsageError(f"--slice {option!r} names no devices.", advice=f"Use NAME=DEVICES, {EXAMPLE}.")
        if check_name("slice", name, UsageError) in slices:
            raise UsageError(f"Slice {name} is given twice.", advice="Name all its devices in one --slice.")
        for device in devices:
            _claim(device, name, owners)
        slices[name] = devices
    if not slices:
        raise UsageError("The agent has no slice to serve.", advice=f"Name one, {EXAMPLE}.")
    return slices


def _claim(device: str, name: str, owners: dict[str, str]) -> None:
    if device in owners:
        both = f"slice {name} twice" if owners[device] == name else f"slice {owners[device]} and slice {name}"
        raise UsageError(
            f"Device {device} is given to {both}.",
            advice="A device belongs to one slice only.",
        )
    owners[device] = name


def accelerator_for(name: str, devices: Iterable[str], backends: Iterable[Backend]) -> Accelerator:
    """The one backend that owns all of a slice's devices; BackendUnavailable when there is none."""
    kinds = [backend for backend in backends if isinstance(backend, Accelerator)]
    owners: dict[str, Accelerator] = {}
    for device in devices:
        owner = next((kind for kind in kinds if kind.claims(device)), None)
        if owner is None:
            raise BackendUnavailable(
                f"Slice {name}: no backend here can move state on device {device!r}.",
                advice="Name GPUs by index or UUID (0, GPU-…, all), simulated accelerators as sim:<name>.",
            )
        owners[owner.name] = owner
    if len(owners) > 1:
        raise UsageError(
            f"Slice {name} mixes devices of {' and '.join(sorted(owners))}.",
            advice="Give each kind of device a slice of its own.",
        )
    return owners.popitem()[1]


def resolved(
    slices: Mapping[str, tuple[str, ...]], kinds: Mapping[str, Accelerator]
) -> dict[str, tuple[str, ...]]:
    """The slices with their devices' lasting names; an error names one that is missing or given twice."""
    owners: dict[str, str] = {}
    found = {name: kinds[name].resolve(devices) for name, devices in slices.items()}
    for name, devices in found.items():
        for device in devices:
            _claim(device, name, owners)
    return found


class DeviceLocks:
    """Holds devices for this agent; they are let go when it ends, however it ends."""

    def __init__(self) -> None:
        self._held: list[IO[str]] = []

    def take(self, accelerator: Accelerator, devices: Iterable[str], owner: str) -> None:
        """Hold each device; ConfigurationError names the agent, pool and slice that has one already."""
        for device in devices:
            self._held.append(_hold(accelerator.lock_file(device), device, owner))

    def keep_young(self) -> None:
        """Many machines remove what nobody has touched for ten days, from /tmp above all; a lock goes with
        its file.
        """
        for file in self._held:
            os.utime(file.fileno())

    def close(self) -> None:
        for file in self._held:
            file.close()
        self._held.clear()


def is_held(path: Path) -> bool:
    """Whether an agent of this machine, be it this one, holds the device with this lock file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # no agent has made it
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _hold(path: Path, device: str, owner: str) -> IO[str]:
    file = _locked(path, device)
    while not _is(file, path):  # its last holder has removed it meanwhile: the lock is worth nothing
        file.close()
        file = _locked(path, device)
    sign(file, f"process {os.getpid()}, {owner}")
    return file


def _is(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _locked(path: Path, device: str) -> IO[str]:
    try:
        return lock(path)
    except TakenError as taken:
        raise ConfigurationError(
            f"Device {device} is served already, by {taken}.",
            advice="A device belongs to one slice of one pool; stop that agent, or use another device.",
        ) from None
    except OSError as failure:
        raise ConfigurationError(
            f"Device {device} cannot be held with {path}: {failure.strerror}.",
            advice="Let the agent's user write this file, which must be no link, and its folder.",
        ) from None


def in_words(slices: Mapping[str, tuple[str, ...]]) -> str:
    """The slices and their devices in words, for the log."""
    return ", ".join(f"{name} ({', '.join(devices)})" for name, devices in slices.items())
