"""What the agent asks of a backend, and what it gets back.

Verbs name the state that is wanted and are idempotent: a verb whose state is reached already succeeds. No
verb retries by itself or decides what comes next: order, journal, admission and rollback are the agent's.
Results are per part (a device, a process), so that a failure names what failed. Every verb has a deadline
in seconds; after it the agent asks `observe`, which changes nothing and alone decides what is true.

Whatever is answered with a reason, here and in the whole agent, is answered with an empty string when all is
well: `if why := accelerator.lacks_room(subject)`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from slicelock.servers import Plan
from slicelock.settings import AgentSettings
from slicelock_agent.exchanges import Layout
from slicelock_agent.mailbox import Mailbox


class Truth(StrEnum):
    """Where a run's state really is, on all parts together."""

    LOADED = "loaded"
    SAVED = "saved"
    PARTIAL = "partial"
    """A verb was begun and not finished; calling it again finishes it."""
    ABSENT = "absent"
    LOST = "lost"
    FAILED = "failed"
    """For good: it can neither be saved nor brought back, although its processes live."""
    UNKNOWN = "unknown"
    """It cannot be told now; it is looked at again, and nothing is done meanwhile."""


@dataclass(frozen=True, slots=True)
class Target:
    """A process of the run on this node. The pidfd holds it: the pid cannot come to mean another process."""

    process: str
    pid: int
    pidfd: int


@dataclass(frozen=True, slots=True)
class Served:
    """A model server that a process of the run is or has started, and how it is put to sleep.

    `asleep`: whether nothing of it is on the devices, as far as the accelerator can tell.
    """

    target: Target
    plan: Plan
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """What a verb is about: a run's state on the devices of a slice, under the fence of the present switch.

    `image` names the saved bytes; it is empty when nothing has been saved yet from outside. `layout` is the
    page over which the run exchanges the devices with another, block by block, if it does.
    """

    run: str
    slice: str
    devices: tuple[str, ...]
    fence: int
    image: str = ""
    targets: tuple[Target, ...] = ()
    servers: tuple[Served, ...] = ()
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What moving a run's state takes."""

    device_bytes: int = 0
    host_bytes: int = 0
    seconds: float = 0.0
    groups: Mapping[Path, int] = field(default_factory=dict[Path, int])
    """Bytes that each control group will hold of it: of the run's processes or of the agent's own."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a verb achieved: bytes moved, and for each part that failed, why."""

    bytes: int = 0
    failures: Mapping[str, str] = field(default_factory=dict[str, str])
    untouched: bool = False
    """It failed before anything was begun: there is nothing to find out, and nothing to undo."""

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def reason(self) -> str:
        """The failures in one line."""
        return "; ".join(f"{part}: {why}" for part, why in sorted(self.failures.items()))


@dataclass(frozen=True, slots=True)
class Owed:
    """What must come back when a run's processes are killed: they themselves (pid and start time in ticks)
    have to be off the devices, and `most` bytes may be left on each that are nobody's.
    """

    processes: tuple[tuple[int, int], ...] = ()
    most: Mapping[str, int] = field(default_factory=dict[str, int])


@runtime_checkable
class Backend(Protocol):
    """One way to move a run's state out of the way and back."""

    name: str

    def preflight(self, devices: Sequence[str]) -> list[str]:
        """What keeps this backend from working on these devices, with the remedies; empty: nothing."""
        ...

    def estimate(self, subject: Subject) -> Estimate:
        """What saving this run would take; cheap, changes nothing."""
        ...

    async def lock(self, subject: Subject, deadline: float) -> Report:
        """Hold all of the run's parts still, or none. Called until no process is left out; then `save`."""
        ...

    async def save(self, subject: Subject, deadline: float) -> Report:
        """Have the run's state off the devices and kept under `subject.image`."""
        ...

    async def restore(self, subject: Subject, deadline: float) -> Report:
        """Have the run's state on the devices again, still locked. What is saved stays until `discard`."""
        ...

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        """Let the run go on. Also undoes a `lock` that no `save` followed."""
        ...

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        """Where the run's state is; changes nothing."""
        ...

    async def discard(self, subject: Subject) -> None:
        """Forget what is saved under `subject.image`."""
        ...


@runtime_checkable
class Accelerator(Backend, Protocol):
    """A backend that owns a kind of device: it moves state from outside, and knows what is on the devices."""

    exclusive: bool
    """Whether the devices hold one run at a time, so that nothing of another may stay behind."""

    def claims(self, device: str) -> bool:
        """Whether this is a name of a device of this kind."""
        ...

    def resolve(self, devices: Sequence[str]) -> tuple[str, ...]:
        """The devices by the names that never change; BackendUnavailable names one that is not there."""
        ...

    def lock_file(self, device: str) -> Path:
        """The file whose lock says that the device has its agent; the same for all agents of the machine."""
        ...

    def used(self, devices: Sequence[str]) -> int:
        """Bytes in use on the devices, whoever's they are; at once."""
        ...

    def estimate(self, subject: Subject, *, told: bool = False) -> Estimate:
        """What saving this run would take now. `told`: counting only what the devices say is its own, and
        nothing that may be.
        """
        ...

    def facts(self, devices: Sequence[str]) -> dict[str, Any]:
        """For people: by device, bytes `used` and `total`, and how `busy` it is (percent; None: unknown)."""
        ...

    def objection(self, subject: Subject, *, hooked: bool = False, begun: bool = False) -> str:
        """Why this run could never be moved off these devices from outside, with the remedy; empty: it can.

        Asked before a run's first turn. `hooked`: it is not to be moved from outside, and is only kept from
        devices of other slices. `begun`: it has had turns, and is not ended for a context there.
        """
        ...

    def waits(self, pid: int) -> bool:
        """Whether a process whose state is saved waits for it, because it used a device all the same."""
        ...

    def lacks_room(self, subject: Subject, at_least: int = 0) -> str:
        """Why the run's saved state would not fit now, or `at_least` bytes on each device; empty: it does.

        Restoring without room loses a job for good.
        """
        ...

    async def strays(self, subject: Subject, deadline: float) -> Truth:
        """As `observe`, of a run that nothing is known of here: SAVED, PARTIAL or FAILED by an agent whose
        journal is gone. ABSENT where no agent could have done that.
        """
        ...

    def company(self, devices: Sequence[str]) -> str:
        """Which processes are on the devices that no run has registered; empty: none."""
        ...

    async def left(self, subject: Subject, allowed: int, others: Mapping[int, int] | None = None) -> str:
        """What of the run is still on the devices, beyond `allowed` bytes on each; empty: nothing.

        With an image: after a save from outside, else after its hooks. `others`: the processes of other runs
        that may have memory there, by pid, and the bytes that each may keep beside its context, for devices
        that do not tell whose memory is whose; None: nobody knows what they have.
        """
        ...

    def found(self, devices: Sequence[str]) -> tuple[str, int]:
        """Whose state the devices say they hold, and the highest fence they know; ("", 0): unknown."""
        ...

    def admit(self, subject: Subject) -> None:
        """Let the run use the devices under its fence, and nobody else."""
        ...

    def owed(self, subject: Subject, others: Mapping[int, int] | None = None) -> Owed:
        """What must come back when the run's processes are killed; `others` as for `left`."""
        ...

    async def wipe(self, devices: Sequence[str], owed: Owed | None = None) -> None:
        """Have nothing of a dead run on the devices. `owed`: what must have come back, as it was before.

        AgentError when it does not, and at each later call as long as it has not.
        """
        ...

    def images(self, slice_name: str) -> Set[str]:
        """The names under which something is saved for the slice; also what a crash has left."""
        ...

    def retire(self, devices: Sequence[str]) -> None:
        """No run has anything on these devices, and the agent ends: `close` may remove what a next agent
        makes anew.
        """
        ...

    def close(self, *, undo: bool = False) -> None:
        """Let go of the devices; nothing on them changes. `undo`: remove what this backend has made."""
        ...


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a backend is made with: the agent's settings, and the way to the hooks of processes."""

    settings: AgentSettings
    mailbox: Mailbox
    uids: Collection[int] | None = None
    """The users whose processes may be touched; None: all."""
    registered: Callable[[], Collection[int]] = tuple
    """The pids of all processes that are known here, of whatever run."""
