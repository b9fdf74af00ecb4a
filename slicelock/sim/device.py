"""A simulated accelerator: the job's side (`attach`, `array`, `use`) and the agent's side (the rest)."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from slicelock.errors import LeaseLost, SimError, TurnError
from slicelock.keys import check_name
from slicelock.paths import is_there
from slicelock.settings import Mode, Settings, SimSettings
from slicelock.sim import files
from slicelock.sim.header import PAGE, Header, Owner, blank, capacity_of
from slicelock.sim.record import append

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64
POISON = b"\xff" * files.CHUNK  # NaN in every floating-point format: whatever is computed from it shows
HEARING_S = 1.0
BUSY_S = 2.0  # how long the agent waits for a use to end, as a driver waits for the kernels in flight

_IMAGE = struct.Struct("<8sQQ64s")  # magic, capacity of the device, bytes in use, the run's name
_IMAGE_MAGIC = b"SLCKIMG1"


class TurnFacts(Protocol):
    """What a device wants to know of a turn."""

    @property
    def run(self) -> str: ...
    @property
    def fences(self) -> Mapping[str, int]: ...


@runtime_checkable
class _LosableTurn(Protocol):
    """A turn that hears by itself when it is lost; `lost` can be waited for here unless it is asyncio's."""

    lost: object

    def check(self) -> None: ...


class SimDevice:
    """One simulated device: `capacity` bytes of memory, and a record of who used it when."""

    def __init__(self, name: str, path: Path, record: Path) -> None:
        """Map the device file at `path`; SimError if it is none. Use `attach` (jobs) or `open` (agents)."""
        self.name, self.path, self.record_path = name, path, record
        with files.explained(f"open the simulated device {path}"), path.open("r+b") as file:
            self.capacity = capacity_of(file.read(PAGE), path)
            if os.fstat(file.fileno()).st_size != PAGE + self.capacity:
                raise SimError(
                    f"{path} is damaged: its size is wrong.", advice="Remove it and start the agent again."
                )
            self._memory = mmap.mmap(file.fileno(), PAGE + self.capacity)
        self._header = Header(self._memory)
        self._inside = threading.local()
        self._whole_run = ""  # the run of a job whose turns are no-ops, since something else holds the slice

    # ------------------------------------------------------------ opening

    @classmethod
    def attach(cls, device: str | None = None) -> SimDevice:
        """The device that SLICELOCK_SIM_DEVICE (or `device`) names, for a job.

        SimError when it does not exist; but with SLICELOCK_MODE `off` or `observe`, where no agent is needed,
        a private one takes its place, which is gone with the process.
        """
        settings = SimSettings.load(sim_device=device)
        name = _device_name(settings.sim_device)
        path, job = _path(settings, name), Settings.load()
        if not is_there(path) and job.mode in (Mode.OFF, Mode.OBSERVE):
            return cls(name, *_private(settings.sim_capacity))
        attached = cls(name, path, path.with_suffix(".record.jsonl"))
        attached._whole_run = job.run or ""
        return attached

    @classmethod
    def open(cls, name: str, *, create: bool = False, settings: SimSettings | None = None) -> SimDevice:
        """The device `name` (as in `sim:<name>`) for an agent; with `create`, made if it does not exist.

        SimError names what is wrong and what to do: shared memory full, folder not writable, a foreign file,
        another capacity.
        """
        settings = settings or SimSettings.load()
        name = _device_name(name)
        path = _path(settings, name)
        if create and not is_there(path):
            files.own_folder(path.parent)
            with files.explained(f"make the simulated device {path}"):
                _make(path, settings.sim_capacity)
        device = cls(name, path, path.with_suffix(".record.jsonl"))
        if create and device.capacity != settings.sim_capacity:
            raise SimError(
                f"{path} has {device.capacity} bytes, SLICELOCK_SIM_CAPACITY says {settings.sim_capacity}.",
                advice="Set it to the device's capacity, or remove the file when no job uses it.",
            )
        return device

    def remove(self) -> None:
        """Remove the device and its record. Jobs that are attached keep a memory that nobody else has."""
        for path in (self.path, self.record_path):
            path.unlink(missing_ok=True)

    # ------------------------------------------------------------ the job's side

    def array(self, shape: int | Sequence[int], dtype: DTypeLike = "float32") -> NDArray[Any]:
        """A NumPy array in device memory, not initialised. Needs a turn like every touch.

        The n-th array of a run always has the same address. SimError when the device's memory does not
        suffice.
        """
        import numpy as np

        kind = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not self._turns():
            self._stray(self._whole_run, 0, time.monotonic_ns(), "memory was asked for outside a turn")
        start = self._allocate(prod(shape) * kind.itemsize)
        return np.ndarray(shape, kind, buffer=self._memory, offset=PAGE + start)

    def _allocate(self, size: int) -> int:
        with files.alone(self.record_path, BUSY_S):  # members of a run may allocate at the same time
            start = -(-self._header.used // ALIGNMENT) * ALIGNMENT
            left = self.capacity - start
            if size > left:
                raise SimError(
                    f"sim:{self.name} is out of memory: {size} bytes wanted, {left} of {self.capacity} left.",
                    advice="Set a larger SLICELOCK_SIM_CAPACITY for the agent, or use smaller arrays.",
                )
            self._header.used = start + size
        return start

    @contextmanager
    def use(self, turn: TurnFacts) -> Generator[None]:
        """Record that the device is used in a turn, from here to the end of the block.

        The use is admitted if the agent let this run in under this turn's fence, and still does at the end.
        Otherwise it is recorded as stray, and goes on all the same: what is computed shows it. While a use
        goes on the agent cannot move the device's bytes, as a driver waits for the kernels in flight.

        Raises LeaseLost, and touches nothing, when the turn is known to be lost.
        """
        self._let_it_hear(turn)
        with files.shared(self.path):
            start, run = time.monotonic_ns(), turn.run or self._whole_run
            fence = self._fence(run, turn.fences)
            admitted = self._admits(run, fence)
            if admitted:
                self._note("begin", run=run, fence=fence, pid=os.getpid(), start_ns=start)
            self._turns().append(run)
            try:
                yield
            finally:
                self._turns().pop()
                self._close(run, fence, start, admitted)

    def _let_it_hear(self, turn: TurnFacts) -> None:
        """Whoever was suspended beyond its lease may get here before the word that its turn is over. Where
        the agent has let in someone else, that word has a moment to come: a driver's call would block here.
        """
        run = turn.run or self._whole_run
        if not isinstance(turn, _LosableTurn) or self._admits(run, self._fence(run, turn.fences)):
            return
        try:
            turn.check()
        except LeaseLost:
            raise
        except TurnError:
            return  # it was yielded: a stray
        if isinstance(turn.lost, threading.Event) and turn.lost.wait(HEARING_S):
            turn.check()

    def _close(self, run: str, fence: int, start: int, admitted: bool) -> None:
        if not admitted:
            self._stray(run, fence, start, "this turn was not admitted")
        elif not self._admits(run, fence):
            self._stray(run, fence, start, "the use went on after its turn")
        else:
            end = time.monotonic_ns()
            self._note("use", run=run, fence=fence, pid=os.getpid(), start_ns=start, end_ns=end)

    def _turns(self) -> list[str]:
        return self._inside.__dict__.setdefault("turns", [])

    def _fence(self, run: str, fences: Mapping[str, int]) -> int:
        """The fence that a turn has for this device: the admitted one, if it is among the turn's."""
        owner = self._header.owner
        if not fences:  # slicelock is off: there is no agent, or one that let the run in as a whole
            return owner.fence if owner.run == run else 0
        return owner.fence if owner.fence in fences.values() else max(fences.values())

    def _admits(self, run: str, fence: int) -> bool:
        owner = self._header.owner
        if not owner.fence:
            return not fence
        return owner.admitted and (owner.run, owner.fence) == (run, fence)

    def _stray(self, run: str, fence: int, start: int, why: str) -> None:
        end = time.monotonic_ns()
        self._note("stray", run=run, fence=fence, pid=os.getpid(), start_ns=start, end_ns=end, why=why)

    def _note(self, what: str, **facts: object) -> None:
        append(self.record_path, what, facts)

    # ------------------------------------------------------------ the agent's side

    @property
    def used(self) -> int:
        """Bytes of device memory given out; 0 when the device is empty."""
        return self._header.used

    @property
    def owner(self) -> Owner:
        """Whose state is in the memory, whether that run is admitted, and the highest fence ever admitted."""
        return self._header.owner

    def admit(self, run: str, fence: int) -> None:
        """Let a run in under a fence; SimError when a higher fence, or this one for another run, has been
        admitted before."""
        owner = self._header.owner
        if fence < owner.fence or (fence == owner.fence and owner.run not in (run, "")):
            raise SimError(
                f"sim:{self.name} does not admit {run} under fence {fence}: it has seen {owner.fence}.",
                advice="A grant came late; ask for another turn.",
                run=run,
                fence=fence,
            )
        self._note("admit", run=run, fence=fence, at_ns=time.monotonic_ns())
        self._header.owner = Owner(run, fence, admitted=True)

    def save_to(self, path: Path, *, timeout: float = BUSY_S) -> int:
        """Copy what is in use to the file `path`, and admit its run no longer. Returns the number of bytes.

        The file appears whole or not at all. SimError when it cannot be written, or when a use has not ended
        after `timeout` seconds; then nothing has changed.
        """
        with files.alone(self.path, timeout), files.explained(f"save the state of sim:{self.name} to {path}"):
            start, used, owner = time.monotonic_ns(), self.used, self.owner
            with (
                files.appears(path, _IMAGE.size + used, replace=True) as fd,
                memoryview(self._memory) as memory,
            ):
                files.write_all(fd, _IMAGE.pack(_IMAGE_MAGIC, self.capacity, used, owner.run.encode()))
                files.write_all(fd, memory[PAGE : PAGE + used])
                self._note_move("save", owner.run, used, start)
            self._header.owner = Owner(owner.run, owner.fence)
        return used

    def poison(self, *, timeout: float = BUSY_S) -> None:
        """Overwrite the whole memory with a pattern and forget whose it was. SimError when a use has not
        ended in time."""
        with files.alone(self.path, timeout):
            self._header.owner = Owner(fence=self.owner.fence)
            _overwrite(self._memory)
            self._header.used = 0

    def restore_from(self, path: Path, *, timeout: float = BUSY_S) -> int:
        """Bring back what `save_to` wrote; its run is still to be admitted. Returns the number of bytes.

        SimError when the device is not empty, or `path` is no whole image for a device of this capacity; then
        nothing has changed. After a death in the middle of it the device still counts as empty.
        """
        with (
            files.alone(self.path, timeout),
            files.explained(f"restore sim:{self.name} from {path}"),
            path.open("rb", 0) as file,
        ):
            start = time.monotonic_ns()
            run, used = self._image_facts(path, file.read(_IMAGE.size), os.fstat(file.fileno()).st_size)
            if self.used:
                raise SimError(f"sim:{self.name} is not empty.", advice="Save or poison what is on it first.")
            with memoryview(self._memory) as memory:
                files.read_into(file.fileno(), memory[PAGE : PAGE + used])
            self._note_move("restore", run, used, start)
            self._header.owner = Owner(run, self.owner.fence)
            self._header.used = used
        return used

    def close(self) -> None:
        """Let go of the mapping. Arrays of this object must not be in use any more."""
        self._memory.close()

    def _image_facts(self, path: Path, head: bytes, size: int) -> tuple[str, int]:
        magic, capacity, used, run = _IMAGE.unpack(head) if len(head) == _IMAGE.size else (b"", 0, 0, b"")
        if magic != _IMAGE_MAGIC or size != _IMAGE.size + used:
            raise SimError(f"{path} is not a saved state.", advice="It is not restored.")
        if capacity != self.capacity:
            raise SimError(
                f"{path} was saved on a device of {capacity} bytes, sim:{self.name} has {self.capacity}.",
                advice="It is not restored.",
            )
        return run.rstrip(b"\0").decode(), used

    def _note_move(self, what: str, run: str, size: int, start: int) -> None:
        self._note(what, run=run, bytes=size, start_ns=start, end_ns=time.monotonic_ns())


def _device_name(text: str) -> str:
    return check_name("device", text.removeprefix("sim:"))


def _path(settings: SimSettings, name: str) -> Path:
    return settings.sim_dir / f"{name}.mem"


def _make(path: Path, capacity: int) -> None:
    with files.appears(path, PAGE + capacity, replace=False) as fd:
        _fill(fd, capacity)
        path.with_suffix(".record.jsonl").touch(mode=0o600)


def _fill(fd: int, capacity: int) -> None:
    files.write_all(fd, blank(capacity))
    with mmap.mmap(fd, PAGE + capacity) as memory:
        _overwrite(memory)


def _overwrite(memory: mmap.mmap) -> None:
    for start in range(PAGE, len(memory), files.CHUNK):
        end = min(start + files.CHUNK, len(memory))
        memory[start:end] = POISON[: end - start]


def _private(capacity: int) -> tuple[Path, Path]:
    """A device without a name, which ends with the process and its children."""
    with files.explained("make a private simulated device"):
        memory, record = os.memfd_create("slicelock-sim"), os.memfd_create("slicelock-record")
        files.reserve(memory, PAGE + capacity)
        _fill(memory, capacity)
    return Path(f"/proc/self/fd/{memory}"), Path(f"/proc/self/fd/{record}")
