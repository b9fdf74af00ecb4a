"""NVIDIA GPUs as the agent's accelerator: what each verb of the protocol is in calls of the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slicelock.errors import BackendUnavailable
from slicelock.host_memory import readable
from slicelock.words import whole
from slicelock_agent.backends.base import BackendContext, Estimate, Owed, Report, Subject, Truth
from slicelock_agent.backends.cuda import preflight
from slicelock_agent.backends.cuda.answers import LOST, NEVER, Answer, State
from slicelock_agent.backends.cuda.census import Census
from slicelock_agent.backends.cuda.discovery import Process, identified, processes_of, stopped
from slicelock_agent.backends.cuda.helpers import Helpers
from slicelock_agent.backends.cuda.host import charged, group_refusal, host_bytes, totals_of
from slicelock_agent.backends.cuda.memory import CONTEXT, DeviceMemory
from slicelock_agent.backends.cuda.saved_runs import Saved, SavedRuns
from slicelock_agent.backends.cuda.stuck import waits_in
from slicelock_agent.backends.cuda.verbs import Deadline, Patience, Verbs
from slicelock_agent.devices import is_held
from slicelock_agent.nvml import Gpus, Nvml, resolve
from slicelock_agent.processes import family

log = logging.getLogger("slicelock_agent")

RATE = 1.5e9
"""Bytes per second that the driver saves at least (an H200, from 8 GiB on: 1.6 to 2.4 out, 4.2 to 7.3 in)."""
LOOKS = 3
LOCKS = Path("/tmp")  # whatever TMPDIR says: agents of all users and jobs of the machine look there


class CudaBackend:
    """GPUs of this machine. Several runs may have processes on them; one at a time works."""

    name = "cuda"
    exclusive = False

    def __init__(
        self,
        context: BackendContext,
        *,
        gpus: Gpus | None = None,
        helpers: Callable[[], Helpers] | None = None,
        patience: Patience | None = None,
    ) -> None:
        settings = context.settings
        self._context, self._program = context, settings.cuda_checkpoint
        self._gpus = gpus or Nvml()
        self._given = helpers is not None
        options = ["--program", str(self._program)] if self._program else []
        self._make, self._helpers = helpers or (lambda: Helpers(options)), None
        self._patience = patience or Patience()
        self._saved_runs = SavedRuns(settings.state_dir / f"{settings.pool}.{settings.node}.saved")
        self._memory = DeviceMemory(self._gpus, self._registered, self._patience)
        self._never: dict[str, str] = {}

    # ------------------------------------------------------------ devices

    def claims(self, device: str) -> bool:
        return device == "all" or whole(device) is not None or device.startswith(("GPU-", "MIG-"))

    def resolve(self, devices: Sequence[str]) -> tuple[str, ...]:
        if parts := [device for device in devices if device.startswith("MIG-")]:
            raise BackendUnavailable(
                f"{parts[0]} is a part of a GPU (MIG), which cannot be saved and restored.",
                advice="Name whole GPUs, by index or by UUID (nvidia-smi -L).",
            )
        return resolve(devices, self._gpus.all())

    def preflight(self, devices: Sequence[str]) -> list[str]:
        """Only what keeps hooks from working too; what keeps the driver from saving is told to each run that
        needs it.
        """
        try:
            resolve(devices, self._gpus.all())
        except BackendUnavailable as failure:
            return [str(failure)]
        for why in self.obstacles(devices):
            log.warning("runs without hooks cannot be served: %s", why)
        return []

    def retire(self, devices: Sequence[str]) -> None:
        return

    def lock_file(self, device: str) -> Path:
        return LOCKS / f"slicelock-{device}.lock"

    def obstacles(self, devices: Sequence[str]) -> list[str]:
        """Why the driver cannot save anything here, each with its remedy."""
        found = [] if self._given else [*preflight.of_agent(), *preflight.of_library(self._program)]
        for uuid in devices:
            found += [why for why in preflight.of_gpu(uuid, self._gpus.health(uuid)) if why not in found]
        return found

    # ------------------------------------------------------------ what is there

    def used(self, devices: Sequence[str]) -> int:
        return self._memory.used(devices)

    def found(self, devices: Sequence[str]) -> tuple[str, int]:
        return "", 0

    def facts(self, devices: Sequence[str]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for uuid in devices:
            used, free = self._gpus.memory(uuid)
            told[uuid] = {"used": used, "total": used + free, "busy": self._gpus.busy(uuid)}
        return told

    def objection(self, subject: Subject, *, hooked: bool = False, begun: bool = False) -> str:
        processes = self._processes(subject)
        if not processes:
            return ""
        if hooked:
            return self._elsewhere(processes, subject, CONTEXT if begun else 0)
        why = next(iter(self.obstacles(subject.devices)), "") or self._never.get(subject.run, "")
        registered = [one for one in processes if one.pid in {target.pid for target in subject.targets}]
        return why or preflight.of_run(registered, subject.devices) or self._elsewhere(processes, subject)

    def _elsewhere(self, processes: Collection[Process], subject: Subject, most: int | None = None) -> str:
        """Which process uses another GPU than these; `most`: more bytes than that of one with an agent."""
        own = {one.pid for one in processes}
        for gpu in self._gpus.all():
            if gpu.uuid in subject.devices or gpu.silent:
                continue
            if most is not None and not is_held(self.lock_file(gpu.uuid)):
                continue
            if pids := sorted(own & set(self._memory.users(gpu.uuid, most or 0))):
                return (
                    f"process {pids[0]} uses GPU {gpu.index} ({gpu.uuid}), which is not of slice "
                    f"{subject.slice}; start it with CUDA_VISIBLE_DEVICES={','.join(subject.devices)}"
                )
        return ""

    def estimate(self, subject: Subject, *, told: bool = False) -> Estimate:
        processes = self._processes(subject)
        sizes = totals_of(self._memory.sizes(processes, subject.devices, told=told))
        size = sum(sizes.values())
        saved = self._saved_runs.read(subject.slice, subject.image)
        most = max(size, saved.bytes if saved else 0)
        known = max(size, 1) if processes else 0  # a process may have memory that NVML does not tell
        return Estimate(known, host_bytes(size), most / RATE, charged(sizes))

    def waits(self, pid: int) -> bool:
        return waits_in(pid)

    def lacks_room(self, subject: Subject, at_least: int = 0) -> str:
        saved = self._saved_runs.read(subject.slice, subject.image) if subject.image else None
        if subject.image and saved is None and (why := self._memory.others(subject.devices)):
            return why
        if saved is not None:
            here = {one: size for one, size in saved.processes.items() if identified(one.pid) == one}
            if why := _standing(here) or self._memory.refusal(Saved(here, saved.spare)):
                return why
        for uuid in subject.devices:
            if at_least and (why := self._memory.lacks(uuid, at_least, 0)):
                return why
        return ""

    def company(self, devices: Sequence[str]) -> str:
        return self._memory.company(devices)

    async def left(self, subject: Subject, allowed: int, others: Mapping[int, int] | None = None) -> str:
        """After the driver's save nothing of the run may be left; after its hooks, what processes need."""
        processes, ranks, devices = self._processes(subject), len(subject.targets), subject.devices
        most = None if subject.image else self._memory.kept(ranks, devices, allowed)

        def why() -> str:
            found = (self._memory.left(processes, uuid, most, others) for uuid in subject.devices)
            return next(filter(None, found), "") or self._outsider(subject, processes, most)

        return await self._memory.settled(subject.devices, why, quick=not subject.image)

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        saved = self._saved_runs.read(subject.slice, subject.image) if subject.image else None
        if saved is not None and saved.lost:
            return Truth.LOST
        processes = await self._census(subject).everyone(saved)
        states = set((await self._verbs.observed(processes, deadline)).values()) - {State.NOT_CUDA}
        here = states - {State.GONE}
        if State.FAILED in here:
            return Truth.FAILED
        if State.UNKNOWN in here:
            return Truth.UNKNOWN
        if State.SAVED in here:
            return Truth.SAVED if here == {State.SAVED} else Truth.PARTIAL
        if here or self._processes(subject):
            return Truth.LOADED
        return Truth.LOST if states or saved else Truth.ABSENT

    async def strays(self, subject: Subject, deadline: float) -> Truth:
        if self.obstacles(subject.devices):
            return Truth.ABSENT  # hooks alone serve runs here
        try:
            return await self.observe(subject, deadline)
        except BackendUnavailable:
            return Truth.ABSENT

    # ------------------------------------------------------------ moving

    async def lock(self, subject: Subject, deadline: float) -> Report:
        """Lock every process that uses CUDA, look again, and lock what has appeared meanwhile, or none."""
        end, census = Deadline.after(deadline), self._census(subject)
        users, unclear = await census.settled()
        why = self._reason_against(subject, users) or self._outsider(subject, self._processes(subject), None)
        if why or unclear:
            return Report(failures=_named(unclear) or {f"run {subject.run}": why}, untouched=True)
        locked: list[Process] = []
        for _ in range(LOOKS):
            new = [one for one in users if one not in locked]
            if not new:
                return Report()
            if failures := await self._verbs.lock(new, end):
                await self._verbs.unlock(locked)
                return Report(failures=_named(failures))
            locked += new
            users, unclear = await census.again(locked)
            if unclear:
                break
        await self._verbs.unlock(locked)
        return Report(failures=_named(unclear) or {f"run {subject.run}": "new CUDA processes keep appearing"})

    async def save(self, subject: Subject, deadline: float) -> Report:
        """Save every process that uses CUDA. Finishes a save that was cut short, too."""
        saved = self._saved_runs.read(subject.slice, subject.image)
        states = await self._verbs.states(await self._census(subject).everyone(saved))
        if unclear := _in_state(states, State.UNKNOWN, State.FAILED):
            return Report(failures=unclear)
        open_ = [one for one, state in states.items() if state in (State.LOCKED, State.RUNNING)]
        sizes = self._memory.sizes(open_, subject.devices)
        if why := group_refusal(totals_of(sizes)):
            return Report(failures={f"run {subject.run}": why})
        self._saved_runs.write(subject.slice, subject.image, self._merged(saved, sizes, subject))
        end = Deadline.after(deadline)
        running = [one for one in open_ if states[one] is State.RUNNING]
        if running and (failures := await self._verbs.lock(running, end)):
            return Report(failures=_named(failures))
        begun = time.monotonic()
        failed = await self._verbs.save(open_, end)
        self._learn(subject.run, failed)
        moved = sum(sum(size.values()) for one, size in sizes.items() if one not in failed)
        _log("saved", subject, moved, time.monotonic() - begun, len(open_))
        return Report(moved, {str(one): f"cannot be saved: {a.words}" for one, a in failed.items()})

    async def restore(self, subject: Subject, deadline: float) -> Report:
        """Restore every saved process, if and only if it is known where all of them are and there is room for
        all of them now. If one fails, those that are back are saved again.
        """
        saved = self._saved_runs.read(subject.slice, subject.image)
        states = await self._verbs.states(await self._census(subject).everyone(saved))
        if unclear := _in_state(states, State.UNKNOWN, State.FAILED):
            return Report(failures=unclear)
        coming = [one for one, state in states.items() if state is State.SAVED]
        if not coming:
            return Report()
        if why := self._reason_to_wait(subject, saved, coming):
            return Report(failures={f"run {subject.run}": why})
        begun = time.monotonic()
        failed = await self._verbs.restore(coming, Deadline.after(deadline))
        if not failed:
            moved = sum(saved.size(one) for one in coming) if saved else 0
            _log("restored", subject, moved, time.monotonic() - begun, len(coming))
            return Report(moved)
        await self._back_again(
            subject, saved or Saved(), [one for one in coming if one not in failed], failed
        )
        return Report(failures={str(one): f"cannot be restored: {a.words}" for one, a in failed.items()})

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        saved = self._saved_runs.read(subject.slice, subject.image) if subject.image else None
        states: dict[Process, State] = {}
        failures: dict[str, str] = {}
        left = await self._census(subject).everyone(saved)
        for _ in range(2):  # a locked sibling may have kept some from answering
            states |= (found := await self._verbs.states(left))
            locked = [one for one, state in found.items() if state is State.LOCKED]
            failures |= _named(await self._verbs.unlock(locked))
            left = [one for one, state in found.items() if state is State.UNKNOWN]
        return Report(failures=_in_state(states, State.UNKNOWN, State.FAILED, State.SAVED) | failures)

    def _reason_against(self, subject: Subject, users: Sequence[Process]) -> str:
        """Why these processes must not be locked: their save would fail, or their restore."""
        if not users:
            return ""
        why = next(iter(self.obstacles(subject.devices)), "") or self._never.get(subject.run, "")
        sizes = self._memory.sizes(users, subject.devices)
        return (
            why
            or preflight.of_run(users, self._on(users, subject.devices))
            or self._elsewhere(users, subject)
            or group_refusal(totals_of(sizes))
            or _standing(users)
        )

    def _outsider(self, subject: Subject, processes: Sequence[Process], allowed: int | None) -> str:
        found = (self._memory.outsider(subject.run, processes, one, allowed) for one in subject.devices)
        return next(filter(None, found), "")

    def _on(self, users: Collection[Process], devices: Sequence[str]) -> list[str]:
        """The GPUs that the processes use, as far as NVML tells."""
        pids = {one.pid for one in users}
        return [uuid for uuid in devices if pids & set(self._gpus.users(uuid))]

    def _reason_to_wait(self, subject: Subject, saved: Saved | None, coming: Sequence[Process]) -> str:
        if why := _standing(coming):
            return why
        if saved is None or set(coming) - set(saved.processes):
            return self._memory.others(subject.devices)
        return self._memory.refusal(Saved({one: saved.processes[one] for one in coming}, saved.spare))

    async def _back_again(
        self, subject: Subject, saved: Saved, back: Sequence[Process], failed: dict[Process, Answer]
    ) -> None:
        """The run is in one state again: saved. A process whose restore lost it is never tried again."""
        if lost := [one for one, answer in failed.items() if answer.code in LOST]:
            reason = f"{lost[0]}: {failed[lost[0]].words}"
            self._saved_runs.write(subject.slice, subject.image, Saved(saved.processes, saved.spare, reason))
        await self._verbs.save(back, Deadline.after(self._patience.unlock + saved.bytes / RATE))

    def _merged(self, saved: Saved | None, sizes: dict[Process, dict[str, int]], subject: Subject) -> Saved:
        """What was written when the save began wins: by now some of it is off the GPU."""
        old = saved or Saved()
        spare = old.spare or {uuid: self._memory.free(uuid) for uuid in subject.devices}
        return Saved({**sizes, **old.processes}, spare)

    def _learn(self, run: str, failed: dict[Process, Answer]) -> None:
        for one, answer in failed.items():
            if answer.code in NEVER:
                self._never[run] = f"{one} could not be saved by the driver: {answer.words}"

    # ------------------------------------------------------------ letting in, letting go

    def admit(self, subject: Subject) -> None:
        """Nothing guards a GPU but the agents' own order."""

    def owed(self, subject: Subject, others: Mapping[int, int] | None = None) -> Owed:
        pids = family([target.pid for target in subject.targets])
        return self._memory.owed([one for one in map(identified, pids) if one], subject.devices, others)

    async def wipe(self, devices: Sequence[str], owed: Owed | None = None) -> None:
        """What killed processes had is the driver's to free; wait until it has."""
        await self._memory.returned(tuple(devices), owed)

    async def discard(self, subject: Subject) -> None:
        self._saved_runs.remove(subject.slice, subject.image)

    def images(self, slice_name: str) -> set[str]:
        return self._saved_runs.images(slice_name)

    def close(self, *, undo: bool = False) -> None:
        if self._helpers is not None:
            self._helpers.close()

    # ------------------------------------------------------------ parts

    @property
    def helpers(self) -> Helpers:
        """The helper processes; there are none before the first call."""
        if self._helpers is None:
            self._helpers = self._make()
        return self._helpers

    @property
    def _verbs(self) -> Verbs:
        return Verbs(self.helpers, self._patience)

    def _census(self, subject: Subject) -> Census:
        return Census(self._verbs, lambda: self._processes(subject))

    def _processes(self, subject: Subject) -> list[Process]:
        roots = [target.pid for target in subject.targets]
        return processes_of(roots, subject.run, self._context.uids)

    def _registered(self) -> set[int]:
        return set(family(self._context.registered()))


def _log(what: str, subject: Subject, moved: int, seconds: float, processes: int) -> None:
    rate = f", {moved / seconds / 1e9:.1f} GB/s" if seconds else ""
    words = "run %s %s by the driver: %s of %d processes in %.2f s%s"
    log.info(words, subject.run, what, readable(moved), processes, seconds, rate)


def _standing(processes: Iterable[Process]) -> str:
    """Why one of them could not answer the driver, which would wait for it for ever."""
    return next((f"{one} {why}" for one in processes if (why := stopped(one.pid))), "")


def _named(failures: dict[Process, str]) -> dict[str, str]:
    return {str(one): why for one, why in failures.items()}


def _in_state(states: Mapping[Process, State], *unwanted: State) -> dict[str, str]:
    """The processes in one of these states, each with why it cannot go on."""
    return {str(one): f"its state is {state}" for one, state in states.items() if state in unwanted}
