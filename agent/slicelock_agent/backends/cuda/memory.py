"""What is on the GPUs and whose it is; whether something more fits. All from NVML, as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slicelock.errors import AgentError, BackendUnavailable
from slicelock.host_memory import GIB, readable
from slicelock_agent.backends.base import Owed
from slicelock_agent.backends.cuda.discovery import Process, described, identified, outside
from slicelock_agent.backends.cuda.saved_runs import Saved
from slicelock_agent.backends.cuda.verbs import Deadline, Patience
from slicelock_agent.nvml import Gpus
from slicelock_agent.processes import FIRST_NAMESPACE, namespace_of

MARGIN, MARGIN_SHARE = GIB, 0.02
"""What must stay free beside a restored run: the larger of 1 GiB and 2 % of what it needs."""
CONTEXT = 2 * GIB
"""What a process may keep on a GPU beside its hooks' own word: its context, loaded kernels, communicators."""

COMMUNICATORS, COMMUNICATORS_SHARE = 10 * GIB, 0.125
"""What NCCL may keep beside that in each rank of a run on several GPUs: the smaller of 10 GiB and an eighth
of the GPU. A communicator has about 1 GiB; 7 to 10 GB together were seen on H100s (nccl#864, verl#6266).
"""


class DeviceMemory:
    """The memory of this node's GPUs. `registered` gives the pids of every run that is known here."""

    def __init__(
        self,
        gpus: Gpus,
        registered: Callable[[], Collection[int]],
        patience: Patience,
        *,
        sees_all: bool | None = None,
    ) -> None:
        self._gpus, self._registered, self._patience = gpus, registered, patience
        self._owed: dict[tuple[str, ...], Owed] = {}
        """By GPUs: what killed processes had there, and has not come back."""
        self._sees_all = namespace_of("self") == FIRST_NAMESPACE if sees_all is None else sees_all

    def used(self, devices: Sequence[str]) -> int:
        """Bytes in use on the GPUs together."""
        return sum(self._gpus.memory(uuid)[0] for uuid in devices)

    def users(self, uuid: str, most: int = 0) -> Collection[int]:
        """The pids on a GPU that may be another slice's, or those with more than `most` bytes there; none
        when it does not answer, which is not this slice's trouble.
        """
        with suppress(BackendUnavailable):
            return [pid for pid, size in self._seen(uuid).items() if not most or (size or 0) > most]
        return ()

    def _seen(self, uuid: str) -> Mapping[int, int | None]:
        """The processes on a GPU, and what each has there, as far as they can be seen from here.

        In a container NVML may name pids of the machine, which tell nothing there: the memory of what is not
        seen may be a run's own.
        """
        users = self._gpus.users(uuid)
        if self._sees_all:
            return users
        return {pid: size for pid, size in users.items() if Path(f"/proc/{pid}").exists()}

    def free(self, uuid: str) -> int:
        return self._gpus.memory(uuid)[1]

    def sizes(
        self, processes: Collection[Process], devices: Sequence[str], *, told: bool = False
    ) -> dict[Process, dict[str, int]]:
        """What each process has on each GPU.

        Where NVML tells no figure for a process, or none of the processes at all (a container's pids, memory
        that is mapped by hand), everything that is not known to be another's counts as the first one's,
        unless only what is `told` is asked for.
        """
        found: dict[Process, dict[str, int]] = {one: {} for one in processes}
        for uuid in devices:
            users = self._seen(uuid)
            known = {one: users[one.pid] for one in processes if users.get(one.pid)}
            for one, size in known.items():
                found[one][uuid] = size or 0
            untold = any(one.pid in users and one not in known for one in processes)
            if not told and (untold or not known):
                self._rest(found, uuid, users)
        return found

    def _rest(self, found: dict[Process, dict[str, int]], uuid: str, users: Mapping[int, int | None]) -> None:
        pids = {one.pid for one in found}
        own = sum(sizes.get(uuid, 0) for sizes in found.values())
        rest = self._nobodys(uuid, users, pids) - own
        if found and rest > 0:
            first = min(found)
            found[first][uuid] = found[first].get(uuid, 0) + rest

    def kept(self, ranks: int, devices: Sequence[str], allowed: int) -> int:
        """Bytes that a run may keep on each GPU after its hooks beside contexts: those that they say, and no
        less than communicators take, which hooks leave alone.
        """
        if ranks < 2 or len(devices) < 2:  # NCCL has one rank on a GPU
            return allowed
        smallest = min(sum(self._gpus.memory(uuid)) for uuid in devices)
        return max(allowed, min(COMMUNICATORS, int(smallest * COMMUNICATORS_SHARE)))

    def left(
        self, processes: Collection[Process], uuid: str, allowed: int | None, others: Mapping[int, int] | None
    ) -> str:
        """What these processes have on the GPU and may not, after a save; empty: nothing.

        `allowed`: bytes beside a context for each that is there; None: not even those. Where NVML tells no
        figure for them, what nobody is known to have counts as theirs, less what `others`, by pid, may keep.
        """
        users, pids = self._seen(uuid), {one.pid for one in processes}
        own = pids & users.keys()
        if size := _told_of(own, users):
            return _above(uuid, size, 0 if allowed is None else allowed + CONTEXT * len(own))
        if processes and others is not None:
            limit = (allowed or 0) + CONTEXT * max(1, len(own)) + _untold(users, others)
            return _above(uuid, self._nobodys(uuid, users, pids), limit)
        return ""

    def outsider(self, run: str, processes: Collection[Process], uuid: str, allowed: int | None) -> str:
        """Who on the GPU was started for the run and is none of its processes, so that nothing moves it, and
        has more than is `allowed` (see `left`); empty: nobody.
        """
        own, limit = {one.pid for one in processes}, -1 if allowed is None else allowed + CONTEXT
        more = [pid for pid, size in self._seen(uuid).items() if (size or 0) > limit]
        for pid in sorted(set(more) - own):
            if outside(pid, run, processes) and pid not in self._registered():
                return (
                    f"{described(pid)} on {uuid} was started for the run and has left its processes, so "
                    "that it is not moved with them; end it, or have it register (slicelock.register)"
                )
        return ""

    def owed(
        self, processes: Collection[Process], devices: Sequence[str], others: Mapping[int, int] | None
    ) -> Owed:
        """What must come back when these processes are killed, with all figures as they are before.

        Where NVML tells theirs, what was nobody's may not grow by more than half of them or a context; else
        nobody may have more than the `others`, by pid, may keep, and a context.
        """
        pids, most = {one.pid for one in processes}, dict[str, int]()
        for uuid in devices:
            users = self._seen(uuid)
            if theirs := _told_of(pids & users.keys(), users):
                most[uuid] = max(0, self._nobodys(uuid, users)) + min(CONTEXT, theirs // 2)
            elif others is not None:
                most[uuid] = CONTEXT + _untold(users, others)
        return Owed(tuple((one.pid, one.start) for one in processes), most)

    async def returned(self, devices: tuple[str, ...], owed: Owed | None = None) -> None:
        """Wait until what killed processes had on the GPUs has come back, now or at an earlier call.

        AgentError names what has not.
        """
        if owed := owed or self._owed.get(devices):
            self._owed[devices] = owed
            if why := await self.settled(devices, lambda: self._missing(owed)):
                raise AgentError(f"{why}, although its processes were killed")
            del self._owed[devices]

    def _missing(self, owed: Owed) -> str:
        for uuid, most in owed.most.items():
            users = self._seen(uuid)
            for pid, start in owed.processes:
                if pid in users and identified(pid) in (None, Process(pid, start)):
                    return f"process {pid} is still on {uuid}"
            if why := _above(uuid, self._nobodys(uuid, users), most):
                return why
        return ""

    def _nobodys(self, uuid: str, users: Mapping[int, int | None], but: Collection[int] = ()) -> int:
        """Bytes in use that NVML tells of no process but these."""
        return self._gpus.memory(uuid)[0] - _told(users, but)

    def foreign(self, uuid: str) -> list[int]:
        """Processes on the GPU that belong to no run that is known here."""
        return sorted(set(self._seen(uuid)) - set(self._registered()))

    def others(self, devices: Sequence[str]) -> str:
        """Who is on the GPUs at all: a run whose size is not known is brought back to empty ones only."""
        for uuid in devices:
            why = "it is not known how much memory it needs, and"
            if pids := sorted(self._gpus.users(uuid)):
                return f"{why} {described(pids[0])} is on {uuid}"
            if (used := self.used([uuid])) > CONTEXT:  # NVML does not tell of everybody
                return f"{why} {readable(used)} are in use on {uuid}"
        return ""

    # ------------------------------------------------------------ room

    def refusal(self, saved: Saved) -> str:
        """Why the run must not be restored now; empty when it fits. Restoring without room loses it."""
        for uuid, size in saved.needs().items():
            if why := self.lacks(uuid, size, saved.spare.get(uuid)) or self.company([uuid]):
                return why
        return ""

    def lacks(self, uuid: str, size: int, spare: int | None = None) -> str:
        """Why so many bytes do not fit on the GPU. `spare`: what was free beside them when they were there;
        they need no more than that again.
        """
        margin = int(max(MARGIN, size * MARGIN_SHARE))
        margin = margin if spare is None else min(margin, max(0, spare))
        free = self.free(uuid)
        if free >= size + margin:
            return ""
        hogs = self.foreign(uuid)
        who = f"; it is used by {', '.join(map(described, hogs))}" if hogs else ""
        return f"{uuid} has {readable(free)} free, {readable(size + margin)} are needed{who}"

    def company(self, devices: Sequence[str]) -> str:
        """Who else is on the GPUs that no run has registered; nothing is restored beside such a process."""
        for uuid in devices:
            if hogs := self.foreign(uuid):
                return f"{uuid} is used by {', '.join(map(described, hogs))}, which no run has registered"
        return ""

    async def settled(
        self, devices: Sequence[str], why_not: Callable[[], str], *, quick: bool = False
    ) -> str:
        """Wait until `why_not()` has nothing to say in two readings that agree; else the last it said.

        `quick`: the process itself freed what is freed, and the driver has it when that returns; after a save
        from outside it lets go of the memory in its own time.
        """
        release, settle = self._patience.release, self._patience.settle
        deadline = Deadline.after(release / 10 if quick else release)
        pause = settle / 40 if quick else settle
        while True:
            before, why = self._reading(devices), why_not()
            await asyncio.sleep(pause)
            why = why or why_not()
            if not why and (before == self._reading(devices) or not deadline.left):
                return ""
            if why and not deadline.left:
                return why

    def _reading(self, devices: Sequence[str]) -> list[int]:
        return [self._gpus.memory(uuid)[0] for uuid in devices]


def _untold(users: Mapping[int, int | None], others: Mapping[int, int]) -> int:
    """Bytes that those of the others may have of which NVML tells nothing."""
    return sum(kept + CONTEXT for pid, kept in others.items() if not users.get(pid))


def _told_of(pids: Collection[int], users: Mapping[int, int | None]) -> int:
    """Bytes of these processes together; 0 where there are none, or NVML does not tell of each."""
    sizes = [users[pid] or 0 for pid in pids]
    return sum(sizes) if all(sizes) else 0


def _above(uuid: str, size: int, most: int) -> str:
    """That so many bytes are more than there may be; empty when they are not."""
    return f"{size} bytes are still in use on {uuid}, {most} may be" if size > most else ""


def _told(users: Mapping[int, int | None], but: Collection[int] = ()) -> int:
    """Bytes that NVML tells of a GPU's processes but these."""
    return sum(size or 0 for pid, size in users.items() if pid not in but)
