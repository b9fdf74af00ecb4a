"""One slice on this node: its devices, its page of the journal, and everything that a switch there needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from slicelock.servers import Plan
from slicelock.settings import AgentSettings
from slicelock.states import RunState
from slicelock_agent.backends.base import Accelerator, Backend, Owed, Served, Subject, Target
from slicelock_agent.clocked import Steps
from slicelock_agent.host_budget import HostBudget
from slicelock_agent.journal import Page
from slicelock_agent.processes import Presence
from slicelock_agent.reconcile import OFF_DEVICE, ON_DEVICE, Here, Stay, Wanted
from slicelock_agent.registry import Registry, RunProcess

DRIVER_PATIENCE_S = 30.0
DRIVER_FACTOR = 3.0
"""A verb may take three times its estimate, and half a minute more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """What belongs to one slice here."""

    name: str
    devices: tuple[str, ...]
    page: Page
    accelerator: Accelerator
    hooks: Backend
    registry: Registry
    budget: HostBudget
    settings: AgentSettings
    elsewhere: Callable[[str], str] = lambda run: ""
    """The other slice of this node on which a run has a turn; empty when there is none."""
    moved_elsewhere: Callable[[str], bool] = lambda run: False
    """Whether another slice of this node has moved something of a run, or is about to."""
    slices: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """All slices of this node and their devices."""
    steps: Steps = field(default_factory=Steps)
    """What the backends have done in the present switch."""

    @property
    def ways(self) -> tuple[str, ...]:
        """How a run may be evicted, in order, unless the slice says otherwise."""
        return self.settings.fallback

    @property
    def hook_deadline(self) -> float:
        """Seconds that hooks may take."""
        return self.settings.hook_deadline

    @property
    def used(self) -> int:
        """Bytes in use on the devices; what hooks that do not count their bytes move can be seen there."""
        return self.accelerator.used(self.devices)

    def here(self, wanted: str, *, passing: bool = False) -> Here:
        """What is here at this moment; `wanted`: the run that is asked for. `passing` leaves out the others
        of which there is nothing to move."""
        page, stays = self.page, self.page.stays
        dead = self.registry.dead((*stays, wanted))
        gone = self._empty_beside(wanted, dead) if passing else ()
        if gone:
            stays = {run: stay for run, stay in stays.items() if run not in gone}
        return Here(page.top, page.admitted, stays, dead, not gone and self.strange(), gone)

    def strange(self) -> bool:
        """Whether the devices hold something of no run that is known to be on them."""
        if not self.accelerator.exclusive:
            return False
        for stay in self.page.stays.values():
            if stay.state in ON_DEVICE:
                return False
        return self.accelerator.used(self.devices) > 0

    def _empty_beside(self, wanted: str, dead: Collection[str]) -> tuple[str, ...]:
        others = [stay for run, stay in self.page.stays.items() if run != wanted and run not in dead]
        return tuple([stay.run for stay in others if self.is_empty_of(stay)])

    def is_empty_of(self, stay: Stay) -> bool:
        """Whether there is nothing to move of a loaded run: no hooks, and nothing on devices of its own."""
        if not self.accelerator.exclusive or stay.hooked or self.registry.moves_itself(stay.run, self.name):
            return False
        return stay.state is RunState.LOADED and not self.accelerator.used(self.devices)

    def subject(self, run: str, fence: int, image: str = "") -> Subject:
        """The run with all of its processes here, for the accelerator."""
        return self._subject(run, fence, image, self.registry.processes(run))

    async def hooked(self, run: str, fence: int) -> Subject:
        """The run with those of its processes whose hooks take commands for this slice, and its servers."""
        subject = self._subject(run, fence, "", self.registry.commanded(run, self.name))
        served = self.registry.served(run, self.name)
        return replace(subject, servers=tuple([await self._server(subject, *one) for one in served]))

    async def _server(self, subject: Subject, process: RunProcess, plan: Plan) -> Served:
        """A server of the run; those that cannot say themselves whether they sleep are looked at."""
        target = _target(process)
        if plan.tells:
            return Served(target, plan)
        allowed = 0 if self.accelerator.exclusive else self.registry.residue(subject.run, self.name)
        others = self._asleep(subject.run) if len(self.registry.processes(subject.run)) == 1 else None
        left = await self.accelerator.left(replace(subject, targets=(target,)), allowed, others)
        return Served(target, plan, asleep=not left)

    async def left(self, run: str, image: str = "") -> str:
        """What of a run is still on the devices and may not be; empty when they are free of it.

        With an image nothing may be, else what its hooks said they leave.
        """
        allowed = 0 if self.accelerator.exclusive or image else self.registry.residue(run, self.name)
        subject = self.subject(run, self.page.top, image)
        return await self.accelerator.left(subject, allowed, self._asleep(run))

    def owed(self, run: str, fence: int) -> Owed:
        """What must come back when a run's processes are killed."""
        return self.accelerator.owed(self.subject(run, fence), self._asleep(run))

    def _asleep(self, run: str) -> dict[int, int] | None:
        """What the processes of all runs but this one may have left on a device, by pid; None while another
        run is there with more than that, or on its way.
        """
        kept: dict[int, int] = {}
        for other in {*self.page.stays, *self.registry.runs} - {run}:
            stay = self.page.stays.get(other)
            if stay is not None and stay.state not in OFF_DEVICE:
                return None
            if stay is not None and stay.image:
                continue
            for one in self.registry.processes(other):
                if stay is not None or self.name in one.slices:
                    kept[one.found.pid] = sum(hook.residue for hook in one.offers(self.name))
        return kept

    def objection(self, run: str, wanted: Wanted) -> str:
        """Why a new run must not be let in: it could never be evicted from here, or has memory on devices of
        slices for which it has no hooks. Empty: as far as that is known it may.
        """
        if reason := self.hidden(run):
            return reason
        ways = wanted.ways or self.ways
        if self.accelerator.exclusive:
            return ""
        hooked = "hooks" in ways and self.registry.moves_itself(run, self.name)
        if "cuda" not in ways or (hooked and not self.empties(wanted)):
            moved = [name for name in self.slices if self.registry.moves_itself(run, name)]
            return self._astray(run, wanted, moved, begun=False)
        subject = self.subject(run, wanted.fence)
        if reason := self.accelerator.objection(subject) or self._host_lacks(subject):
            return f"it could not be evicted from here: {reason}"
        return ""

    def astray(self, run: str, wanted: Wanted) -> str:
        """Why a run with hooks that has been here must not come back: by now it has shown which devices it
        uses, and some are of slices that are none of its own. Who saves a run from outside looks for himself.
        """
        if self.accelerator.exclusive or not self.registry.moves_itself(run, self.name):
            return ""
        own = {name for one in self.registry.processes(run) for name in one.slices}
        return self._astray(run, wanted, [name for name in self.slices if name in own], begun=True)

    def _astray(self, run: str, wanted: Wanted, names: Iterable[str], *, begun: bool) -> str:
        """Which process of a run is on devices of slices that are neither this one nor among these."""
        devices = dict.fromkeys(chain(self.devices, *(self.slices[name] for name in names)))
        subject = replace(self.subject(run, wanted.fence), devices=tuple(devices))
        return self.accelerator.objection(subject, hooked=True, begun=begun)

    def _host_lacks(self, subject: Subject) -> str:
        """Why what a new run is known to have on the devices could not be kept here."""
        need = self.accelerator.estimate(subject, told=True)
        return self.budget.refusal(need.host_bytes, need.groups)

    def hidden(self, run: str) -> str:
        """Why not all processes of a run can be moved from here; empty when they can, or need not be."""
        known = self.registry.runs.get(run)
        if self.accelerator.exclusive or known is None or self.registry.moves_itself(run, self.name):
            return ""
        for one in known.processes.values():
            what = f"its process {one.identity.pid}"
            if one.found.presence is Presence.UNSEEN:
                return (
                    f"{what} cannot be seen from here (another pid namespace), hooks or not; run the agent "
                    "in the machine's own (pid: host; in Kubernetes: hostPID)"
                )
            if one.found.presence is Presence.DENIED:
                return (
                    f"{what} is of a user that this agent may not touch, hooks or not; name that user in "
                    "SLICELOCK_ALLOW_UIDS"
                )
        return ""

    def may_be_saved(self, run: str) -> bool:
        """Whether a run may be saved although the page does not know it: see `taking_over.take_over`."""
        possible = not self.accelerator.exclusive or self.registry.offloaded(run, self.name)
        return possible and run not in self.page.stays

    def empties(self, wanted: Wanted) -> bool:
        """Whether what a run's hooks leave is saved from outside, so that nothing of it stays."""
        return self.settings.zero_residue if wanted.zero_residue is None else wanted.zero_residue

    def no_room(self, run: str, wanted: Wanted) -> str:
        """Why there is no room for a run now: for what is saved of it, for what its hooks are to reload, or
        for the first turn of a new one.
        """
        stay = self.page.stays.get(run)
        if stay is not None and not stay.image:
            return self._no_room_to_reload(stay, wanted.fence)
        least = int(self.settings.min_free) if wanted.min_free is None else wanted.min_free
        if stay is None and not least:
            return ""
        subject = self.subject(run, wanted.fence, stay.image if stay else "")
        return self.accelerator.lacks_room(subject, 0 if stay else least)

    def _no_room_to_reload(self, stay: Stay, fence: int) -> str:
        """Not every hook looks before it takes memory. What it freed is taken to be spread evenly."""
        if self.accelerator.exclusive or not (stay.hooked and stay.bytes):
            return ""
        subject, share = self.subject(stay.run, fence), len(self.devices)
        why = self.accelerator.lacks_room(subject, stay.bytes // share)
        if not why or stay.state is RunState.SAVED:
            return why
        # Something of it may be there already: hooks that failed half-way, or what was restored from outside.
        there = self.accelerator.estimate(subject).device_bytes
        return self.accelerator.lacks_room(subject, max(0, stay.bytes - there) // share)

    def deadline(self, subject: Subject) -> float:
        """Seconds that moving this much may take."""
        return DRIVER_FACTOR * self.accelerator.estimate(subject).seconds + DRIVER_PATIENCE_S

    def _subject(self, run: str, fence: int, image: str, processes: list[RunProcess]) -> Subject:
        targets = tuple(_target(one) for one in processes)
        return Subject(run, self.name, self.devices, fence, image, targets)


def _target(process: RunProcess) -> Target:
    return Target(str(process.identity), process.found.pid, process.found.pidfd)
