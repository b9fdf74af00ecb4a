"""Puts the agent's parts together: one journal, one pulse, one switcher for each slice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from slicelock.errors import BackendUnavailable, SlicelockError
from slicelock.identity import boot_id
from slicelock.keys import Keys
from slicelock.metrics import check_installed
from slicelock.paths import is_there
from slicelock.settings import AgentSettings
from slicelock.store import AsyncStore, AsyncSubscription, PrimaryWatch
from slicelock.wire import Beat
from slicelock_agent import backends, clocked, exchanges, taking_over
from slicelock_agent.advocate import Advocate
from slicelock_agent.backends.base import Accelerator, BackendContext
from slicelock_agent.declaring import Declarer
from slicelock_agent.devices import DeviceLocks, accelerator_for, in_words, resolved
from slicelock_agent.host_budget import HostBudget
from slicelock_agent.introducing import goodbye, identity_of, introduce, reached
from slicelock_agent.journal import Journal
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.processes import Finder
from slicelock_agent.pulse import Facts, Pulse
from slicelock_agent.registry import Registry
from slicelock_agent.station import Station
from slicelock_agent.supervision import cancelled, supervised
from slicelock_agent.switcher import Switcher
from slicelock_agent.tally import UNCOUNTED, Tally

log = logging.getLogger("slicelock_agent")

HOUSEKEEPING_S = 2.0
LOOK_S = 1.0
"""Between two looks at the devices' memory and use."""
STOP_PATIENCE_S = 10.0
GOODBYE_S = 1.0
"""For a last word to a Redis that may hang."""
REST_BEATS = 2.5
"""After so many beats that have not come, this machine's agent of an earlier boot has ended."""


class Agent:
    """One node's agent, for one pool. `start`, then `serve` until told to stop, then `close`."""

    def __init__(self, settings: AgentSettings, slices: Mapping[str, tuple[str, ...]], version: str) -> None:
        self._settings, self._slices, self._version = settings, slices, version
        self._boot = boot_id()
        self._path = settings.state_dir / f"{settings.pool}.{settings.node}.journal"
        self._new = not is_there(self._path)
        settings.url()  # the one setting that has no default
        self._store = AsyncStore(settings, name=f"agent-{settings.node}")
        self._watch = PrimaryWatch(settings, lambda: None)  # what is cut is opened again without being told
        self._mailbox = Mailbox()
        self._registry: Registry | None = None
        self._locks = DeviceLocks()
        self._tasks: list[asyncio.Task[None]] = []
        self._undo: list[Callable[[], object]] = [self._watch.close, self._locks.close]

    @property
    def summary(self) -> str:
        """Whom this agent serves, in a line."""
        return f"node {self._settings.node} slices {' '.join(self._slices)}"

    # ------------------------------------------------------------ start

    async def start(self) -> None:
        """Take the journal and the devices, make the slices known, and beat once.

        SlicelockError says why not; a first start that fails leaves nothing behind.
        """
        self._prepare()
        exchanges.tidy()
        await self._reach()
        self._watch.start()
        for name in self._slices:
            await reached(partial(self._declarer.check, name))
        journal = Journal(self._path, self._boot)
        self._undo.append(lambda: journal.remove() if self._new else journal.close())
        await self._build(journal)
        await self._introduce(self._pulse.facts.question())
        for name in self._slices:
            await reached(partial(self._declarer.declare, name))
        await self._introduce(self._pulse.facts.beat({}))  # two may have started at the same time
        if journal.blank:
            await self._take_up_reports()
            journal.begun()
        await reached(self._hints.open)
        for name, switcher in self._pulse.switchers.items():
            self._begin(f"slice {name}", switcher.run)
        self._begin("pulse", self._pulse.run)
        self._begin("hints", self._hints.watch)
        self._begin("housekeeping", self._keep_house)
        self._begin("devices", self._read_devices)
        self._begin("frozen runs", self._advocate.run)
        await self._pulse.answered.wait()
        self._new = False

    def _prepare(self) -> None:
        """Find out what moves state on each slice's devices, and which devices are meant."""
        context = BackendContext(self._settings, self._mailbox, _allowed(self._settings), self._pids)
        self._backends, given = backends.load(context), self._slices
        self._kinds = {
            name: accelerator_for(name, devices, self._backends.values()) for name, devices in given.items()
        }
        self._slices = resolved(given, self._kinds)
        self._declarer = Declarer(self._store, self._settings.pool, self._settings.node, self._slices, given)

    def _pids(self) -> list[int]:
        """Every process that is known here, of whatever run."""
        runs = self._registry.runs.values() if self._registry else ()
        return [process.found.pid for run in runs for process in run.here()]

    def _begin(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(supervised(name, work)))

    async def _reach(self) -> None:
        """Connect. A first start fails without Redis, since its address may be wrong; a later one waits. Once
        it was right, a Redis that goes away is waited for."""
        await (self._store.open() if self._new else reached(self._store.open))

    async def _introduce(self, beat: Beat) -> None:
        await introduce(self._store, beat, self._before, REST_BEATS * self._settings.beat)

    async def _build(self, journal: Journal) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        mailbox, made, kinds = self._mailbox, self._backends, self._kinds
        registry = Registry(
            Finder(journal.boots, _allowed(settings)), journal, loop.add_reader, loop.remove_reader
        )
        me, silent_ms = identity_of(self._boot, journal.id), int(settings.silent * 1000)
        self._before = {f"{boot}:{journal.id}" for boot in journal.boots if boot != self._boot}
        facts = Facts(settings.node, me, self._version, silent_ms, settings.beat)
        observed, serve = self._tally()
        pulse = Pulse(self._store, facts, registry, mailbox, observed)
        channel, name = Keys(settings.pool).node_channel(settings.node), f"agent-{settings.node}-hints"
        self._hints = AsyncSubscription(settings, [channel], pulse.heed, beside=self._store, name=name)
        self._undo += [registry.close, self._hints.close, pulse.close]
        self._advocate = Advocate(
            self._store, settings.node, registry, pulse.switchers.values, lambda: pulse.in_touch_since
        )
        mailbox.post, registry.on_word = pulse.wake, mailbox.heard
        registry.on_gone = lambda process: self._gone(mailbox, process)
        self._pulse, self._registry, budget = pulse, registry, HostBudget()
        for name, devices in self._slices.items():
            await self._take(name, kinds[name], journal)
            steps = clocked.Steps()
            station = Station(
                name=name,
                devices=devices,
                page=journal.page(name),
                accelerator=clocked.outside(kinds[name], steps),
                hooks=clocked.hooks(made["hooks"], steps, partial(kinds[name].used, devices)),
                registry=registry,
                budget=budget,
                settings=settings,
                elsewhere=partial(self._elsewhere, name),
                moved_elsewhere=partial(self._moved_elsewhere, name),
                slices=self._slices,
                steps=steps,
            )
            pulse.switchers[name] = Switcher(station, pulse.tell, pulse.wake)
        serve()

    async def _take_up_reports(self) -> None:
        """Without a journal: go by what this node's last agent has told, as far as it is found to be true."""
        registry, facts = self._registry, self._pulse.facts
        assert registry is not None
        stations = {name: switcher.at for name, switcher in self._pulse.switchers.items()}
        await taking_over.take_up_reports(self._store, self._settings, registry, stations, facts.beat)

    def _tally(self) -> tuple[Tally, Callable[[], None]]:
        """What counts what happens, and what serves that once there is something to tell."""
        if (address := self._settings.metrics) is None:
            return UNCOUNTED, lambda: None
        check_installed()
        from slicelock_agent.metrics import AgentMetrics, Serving

        counted = AgentMetrics(self._settings, self._version, lambda: self._pulse.switchers)

        def serve() -> None:
            serving = Serving(address, counted.registry, lambda: self._pulse.in_touch)
            self._undo.append(serving.close)
            log.info("metrics at %s/metrics", serving.url)

        return counted, serve

    def _elsewhere(self, name: str, run: str) -> str:
        """The other slice here on which the run has a turn."""
        others = (one for one in self._pulse.switchers.values() if one.at.name != name)
        return next((one.at.name for one in others if one.holds(run)), "")

    def _moved_elsewhere(self, name: str, run: str) -> bool:
        """Whether another slice's page here says that something of the run is saved or offloaded."""
        others = (one.at.page.stays.get(run) for one in self._pulse.switchers.values() if one.at.name != name)
        return any(stay.image or stay.hooked for stay in others if stay)

    async def _take(self, name: str, accelerator: Accelerator, journal: Journal) -> None:
        """Hold the slice's devices; after a new boot nothing of any run may be on them."""
        devices = self._slices[name]
        self._undo.append(lambda: accelerator.close(undo=self._new))
        self._locks.take(accelerator, devices, f"pool {self._settings.pool}, slice {name}")
        if problems := accelerator.preflight(devices):
            raise BackendUnavailable(f"Slice {name}: {problems[0]}")
        if journal.reborn:
            await accelerator.wipe(devices)

    # ------------------------------------------------------------ service

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; then let what is under way come to its end, and begin nothing."""
        log.info("serving %s on node %s", in_words(self._slices), self._settings.node)
        await stop.wait()
        switchers = self._pulse.switchers.values()
        for switcher in switchers:
            switcher.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE_S):
                await asyncio.gather(*(switcher.stopped() for switcher in switchers))
                await self._pulse.told_all()
                await self._say_goodbye()
        self._retire()

    async def _say_goodbye(self) -> None:
        """Nothing is under way any more: the node's next agent, whichever it is, need not wait."""
        self._pulse.close()
        facts = self._pulse.facts
        if self._pulse.in_touch:
            with contextlib.suppress(SlicelockError, TimeoutError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._store.run(goodbye(facts.node, facts.agent))

    def _retire(self) -> None:
        """Devices of which no run has anything any more need not outlive the agent."""
        assert self._registry is not None
        for switcher in self._pulse.switchers.values():
            at = switcher.at
            if set(at.page.stays) <= self._registry.dead(at.page.stays):
                at.accelerator.retire(at.devices)

    async def close(self) -> None:
        """Let go of everything; nothing on the devices changes."""
        await cancelled(self._tasks)
        await (
            asyncio.get_running_loop().shutdown_default_executor()
        )  # a copy under way ends before its memory goes
        for undo in reversed(self._undo):
            undo()
        await self._store.aclose()

    def _gone(self, mailbox: Mailbox, process: str) -> None:
        """A process has ended: tell at once, wait for it no longer, drop what it was the last one to need."""
        mailbox.gone(process)
        self._pulse.wake()
        for switcher in self._pulse.switchers.values():
            switcher.look()

    async def _keep_house(self) -> None:
        """What can wait: processes that could not be seen, slices that Redis has lost, files that age."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            self._locks.keep_young()
            assert self._registry is not None
            if self._registry.look_again():
                self._pulse.wake()
            if await self._declarer.declare_again(set(self._pulse.unknown)):
                self._pulse.wake()

    async def _read_devices(self) -> None:
        """What people see of memory and use. On a thread: a driver that is ill may take its time."""
        while True:
            for switcher in self._pulse.switchers.values():
                at = switcher.at
                with contextlib.suppress(SlicelockError, OSError):
                    switcher.saw(await asyncio.to_thread(at.accelerator.facts, at.devices))
            await asyncio.sleep(LOOK_S)


def _allowed(settings: AgentSettings) -> Collection[int] | None:
    """The users whose processes this agent may touch; None: all."""
    return settings.allow_uids or (None if os.geteuid() == 0 else (os.geteuid(),))
