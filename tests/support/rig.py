"""An agent without Redis: its real journal, switchers and sim backend, told by the test what is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slicelock_agent import clocked
from slicelock_agent.backends.base import Backend, BackendContext, Report, Subject, Truth
from slicelock_agent.backends.sim import SimBackend
from slicelock_agent.host_budget import HostBudget
from slicelock_agent.journal import Journal, Page
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.processes import Finder, Found, Presence
from slicelock_agent.reconcile import Admitted, Wanted
from slicelock_agent.registry import Registry, RunProcess
from slicelock_agent.result import Result
from slicelock_agent.station import Station
from slicelock_agent.switcher import Switcher

from slicelock.identity import ProcessIdentity
from slicelock.settings import AgentSettings
from slicelock.sim import Record, SimDevice
from slicelock.sim.header import PAGE
from tests.support.wait import wait_until_async

CAPACITY = 65_536
BOOT = "b" * 32


class FakeRegistry(Registry):
    """Runs that are dead when the test says so, and have hooks when it says so."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(Finder([BOOT], None), journal, lambda fd, call: None, lambda fd: None)
        self.dead_runs: set[str] = set()
        self.hook_runs: set[str] = set()

    def dead(self, runs: Iterable[str]) -> frozenset[str]:
        return frozenset(self.dead_runs.intersection(runs))

    def commanded(self, run: str, name: str) -> list[RunProcess]:
        one = RunProcess(ProcessIdentity(BOOT, 1, 1, 1), Found(Presence.HERE, 1, -1))
        return [one] if run in self.hook_runs else []

    def moves_itself(self, run: str, name: str) -> bool:
        return run in self.hook_runs


class FakeHooks:
    """Hooks of all runs: `offloaded` has those whose state they hold. `script` says how the next calls go."""

    name = "hooks"

    def __init__(self) -> None:
        self.offloaded: set[str] = set()
        self.bytes = 7
        self.calls: list[tuple[str, str, int]] = []
        self.failures: dict[tuple[str, str], str] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.effect: Callable[[str], None] = lambda what: None
        self.on_offload: Callable[[str], None] = lambda run: None

    def preflight(self, devices: Any) -> list[str]:
        return []

    def estimate(self, subject: Subject) -> Any:
        raise AssertionError("hooks are not estimated")

    async def lock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def save(self, subject: Subject, deadline: float) -> Report:
        report = await self._call("offload", subject)
        if report.ok:
            self.offloaded.add(subject.run)
            self.on_offload(subject.run)
            self.effect("offloaded")
        return report

    async def restore(self, subject: Subject, deadline: float) -> Report:
        report = await self._call("reload", subject)
        if report.ok:
            self.offloaded.discard(subject.run)
            self.effect("reloaded")
        return report

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        return Truth.UNKNOWN

    async def discard(self, subject: Subject) -> None:
        return

    async def _call(self, what: str, subject: Subject) -> Report:
        self.calls.append((what, subject.run, subject.fence))
        self.effect(what)
        if what in self.held:
            await self.held[what].wait()
        why = self.failures.get((what, subject.run))
        return Report(failures={"process 1": why}) if why else Report(self.bytes)


def settings_in(folder: Path, **facts: Any) -> AgentSettings:
    """Settings of an agent whose every file is in `folder`."""
    given = {
        "redis_url": "redis://nowhere",
        "pool": "p",
        "node": "n1",
        "state_dir": folder / "state",
        "sim_dir": folder / "sim",
        "sim_capacity": CAPACITY,
        "hook_deadline": 5.0,
        **facts,
    }
    return AgentSettings(**given)


def write_to(device: SimDevice, data: bytes) -> None:
    """Put a run's state on a device, from its first byte on, and close it."""
    if device.used < len(data):
        device.array(len(data) - device.used, "uint8")
    device.close()
    with device.path.open("r+b") as file:
        file.seek(PAGE)
        file.write(data)


def read_from(folder: Path, device: str, size: int) -> bytes:
    """The first bytes that are on a device."""
    with (folder / f"{device}.mem").open("rb") as file:
        file.seek(PAGE)
        return file.read(size)


@dataclass(eq=False)
class Rig:
    """One slice `s` on the devices given, as `tasks` of the running loop between `start` and `stop`."""

    folder: Path
    devices: tuple[str, ...] = ("sim:d",)
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hooks: FakeHooks = field(default_factory=FakeHooks)
    backend: Callable[[BackendContext], SimBackend] = SimBackend
    journal: Callable[[Path, str], Journal] = Journal
    kind_of_registry: Callable[[Journal], Any] = FakeRegistry
    budget: HostBudget = field(default_factory=HostBudget)

    @cached_property
    def settings(self) -> AgentSettings:
        return settings_in(self.folder, **self.facts)

    async def start(self) -> Rig:
        settings = self.settings
        self.book = self.journal(settings.state_dir / "p.n1.journal", BOOT)
        self.accelerator = self.backend(BackendContext(settings, Mailbox()))
        self.registry = self.kind_of_registry(self.book)
        self.results: list[Result] = []
        hooks: Backend = self.hooks
        steps = clocked.Steps()
        station = Station(
            name="s",
            devices=self.devices,
            page=self.book.page("s"),
            accelerator=clocked.outside(self.accelerator, steps),
            hooks=clocked.hooks(hooks, steps, lambda: self.accelerator.used(self.devices)),
            registry=self.registry,
            budget=self.budget,
            settings=settings,
            steps=steps,
        )
        self.switcher = Switcher(station, self.results.append, lambda: None)
        self.task = asyncio.create_task(self.switcher.run())
        return self

    async def stop(self) -> None:
        """End as after a kill: nothing is finished, nothing is told."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.accelerator.close()
        self.book.close()

    async def __aenter__(self) -> Rig:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------ what Redis would say

    def want(self, run: str, fence: int, **facts: Any) -> None:
        self.switcher.want(Wanted("switching", fence, run, "main", fence, **facts))

    def want_nothing(self, **facts: Any) -> None:
        self.switcher.want(Wanted(**facts))

    async def idle(self) -> None:
        """Wait until no step is under way, or the task has ended."""
        await asyncio.sleep(0)
        await wait_until_async(lambda: self.task.done() or not self.switcher.doing, what="the switcher rests")

    async def turn(self, run: str, fence: int, **facts: Any) -> Result:
        """Want a turn and wait for how it ends."""
        before = len(self.results)
        self.want(run, fence, **facts)
        await wait_until_async(
            lambda: self.task.done() or len(self.results) > before, what=f"{run} is loaded"
        )
        if self.task.done():
            self.task.result()
        return self.results[-1]

    # ------------------------------------------------------------ the job's side, and what is there

    @property
    def page(self) -> Page:
        return self.book.page("s")

    @property
    def admitted(self) -> Admitted | None:
        return self.page.admitted

    def states(self) -> dict[str, str]:
        return {run: str(stay.state) for run, stay in self.page.stays.items()}

    def write(self, data: bytes, device: str = "d") -> None:
        """Have the job put its state on a device, from its first byte on."""
        write_to(self._open(device), data)

    def empty(self, device: str = "d") -> None:
        """Have a framework give its device memory back."""
        memory = self._open(device)
        memory._header.used = 0
        memory.close()

    def read(self, size: int, device: str = "d") -> bytes:
        return read_from(self.folder / "sim", device, size)

    def used(self, device: str = "d") -> int:
        return self.accelerator.used([f"sim:{device}"])

    def images(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "sim" / "images" / "p" / "n1" / "s").glob("*"))

    def record(self, device: str = "d") -> Record:
        return Record.load(self.folder / "sim" / f"{device}.record.jsonl")

    def _open(self, device: str) -> SimDevice:
        return SimDevice.open(device, settings=self.settings)
