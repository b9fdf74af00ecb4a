"""Puts the agent's parts together: one journal, one pulse, one switcher for each slice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Mapping

from slicelock.errors import ConfigurationError, SlicelockError, StoreUnavailable
from slicelock.identity import boot_id
from slicelock.keys import Keys
from slicelock.settings import AgentSettings
from slicelock.store import DirectStore, DirectSubscription
from slicelock_agent import backends
from slicelock_agent.admission import HostBudget
from slicelock_agent.backends.base import Accelerator, Backend, BackendContext
from slicelock_agent.declaring import Declarer
from slicelock_agent.devices import DeviceLocks, accelerator_for, needed_by
from slicelock_agent.journal import Journal
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.processes import Finder
from slicelock_agent.pulse import Facts, Pulse
from slicelock_agent.registry import Registry
from slicelock_agent.station import Station
from slicelock_agent.supervision import cancelled, supervised
from slicelock_agent.switcher import Switcher

log = logging.getLogger("slicelock_agent")

HOUSEKEEPING_S = 2.0
STOP_PATIENCE_S = 10.0
FIRST_RETRY_S = 1.0


class Agent:
    """One node's agent, for one pool. `start`, then `serve` until told to stop, then `close`."""

    def __init__(self, settings: AgentSettings, slices: Mapping[str, tuple[str, ...]], version: str) -> None:
        self._settings, self._slices, self._version = settings, slices, version
        self._boot = boot_id()
        self._locks = DeviceLocks()
        self._store = DirectStore(settings, name=f"agent-{settings.node}")
        self._declarer = Declarer(self._store, settings.pool, settings.node, slices)
        self._tasks: list[asyncio.Task[None]] = []
        self._accelerators: set[Accelerator] = set()
        self._journal: Journal | None = None
        self._registry: Registry | None = None

    @property
    def summary(self) -> str:
        """Whom this agent serves, in a line."""
        return f"node {self._settings.node} slices {' '.join(self._slices)}"

    # ------------------------------------------------------------ start

    async def start(self) -> None:
        """Take the journal and the devices, make the slices known, and beat once. SlicelockError says why
        not.
        """
        await self._build()
        for name in self._slices:
            await self._patiently(name)
        await self._hints.open()
        for name, switcher in self._pulse.switchers.items():
            self._tasks.append(asyncio.create_task(supervised(f"slice {name}", switcher.run)))
        for name, work in (
            ("pulse", self._pulse.run),
            ("hints", self._hints.watch),
            ("housekeeping", self._keep_house),
        ):
            self._tasks.append(asyncio.create_task(supervised(name, work)))
        await self._pulse.answered.wait()

    async def _build(self) -> None:
        settings = self._settings
        settings.url()  # the one thing that has no default
        path = settings.state_dir / f"{settings.pool}.{settings.node}.journal"
        journal = self._journal = Journal(path, self._boot)
        loop, mailbox = asyncio.get_running_loop(), Mailbox()
        finder = Finder(journal.boots, _allowed(settings))
        registry = self._registry = Registry(finder, journal, loop.add_reader, loop.remove_reader)
        facts = Facts(settings.node, self._boot, self._version, int(settings.silent * 1000), settings.beat)
        pulse = self._pulse = Pulse(self._store, facts, registry, mailbox)
        channel = Keys(settings.pool).node_channel(settings.node)
        self._hints = DirectSubscription(settings, [channel], pulse.wake, name=f"agent-{settings.node}-hints")
        mailbox.post, registry.on_word = pulse.wake, mailbox.heard
        registry.on_gone = lambda process: self._gone(mailbox, process)
        made = backends.load(BackendContext(settings, mailbox))
        budget = HostBudget()
        for name, devices in self._slices.items():
            accelerator = self._take(name, devices, made)
            if journal.reborn:
                await accelerator.wipe(devices)
            station = Station(
                name, devices, journal.page(name), accelerator, made["hooks"], registry, budget, settings
            )
            pulse.switchers[name] = Switcher(station, pulse.tell, pulse.wake)

    def _take(self, name: str, devices: tuple[str, ...], made: Mapping[str, Backend]) -> Accelerator:
        """Hold the slice's devices."""
        accelerator = accelerator_for(name, devices, made.values())
        self._accelerators.add(accelerator)
        self._locks.take(accelerator, devices, f"pool {self._settings.pool}, slice {name}")
        return accelerator

    async def _patiently(self, name: str) -> None:
        """Declare a slice. A first start fails without Redis, since its address may be wrong; a later one
        waits.
        """
        assert self._journal is not None
        told = False
        while True:
            try:
                return await self._declarer.declare(name)
            except StoreUnavailable as failure:
                if not self._journal.used_before:
                    raise
                if not told:
                    log.warning("%s Waiting for it.", failure)
                told = True
            await asyncio.sleep(FIRST_RETRY_S)

    # ------------------------------------------------------------ service

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then let what is under way come to its end, and begin nothing."""
        log.info("serving %s on node %s", needed_by(self._slices), self._settings.node)
        await stop.wait()
        switchers = self._pulse.switchers.values()
        for switcher in switchers:
            switcher.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE_S):
                await asyncio.gather(*(switcher.stopped() for switcher in switchers))
                await self._pulse.told_all()

    async def close(self) -> None:
        """Let go of everything; nothing on the devices changes."""
        await cancelled(self._tasks)
        await (
            asyncio.get_running_loop().shutdown_default_executor()
        )  # a copy under way ends before its memory goes
        self._hints.close()
        self._store.close()
        for accelerator in self._accelerators:
            accelerator.close()
        if self._registry is not None:
            self._registry.close()
        self._locks.close()
        if self._journal is not None:
            self._journal.close()

    def _gone(self, mailbox: Mailbox, process: str) -> None:
        """A process has ended: tell at once, wait for it no longer, drop what it was the last one to need."""
        mailbox.gone(process)
        self._pulse.wake()
        for switcher in self._pulse.switchers.values():
            switcher.look()

    async def _keep_house(self) -> None:
        """What can wait: processes that could not be seen, slices that Redis has lost."""
        assert self._registry is not None
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            self._registry.look_again()
            for name in list(self._pulse.unknown):
                try:
                    await self._declarer.declare(name)
                    log.info("slice %s was not known any more; it is declared again", name)
                    self._pulse.wake()
                except (ConfigurationError, SlicelockError) as failure:
                    log.warning("%s", failure)


def _allowed(settings: AgentSettings) -> Collection[int] | None:
    """The users whose processes this agent may touch; None: all."""
    return settings.allow_uids or (None if os.geteuid() == 0 else (os.geteuid(),))
