"""The `http` backend: model servers that run without the client library are put to sleep by their own
interface.

Where they are comes from Redis, and is taken on no trust: a server is spoken to only on this machine, and
only where nobody but a process of the run listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from slicelock.servers import HttpClient, Kind, ModelServer, Sglang, SleepRecord, Vllm, VllmHttp, fleet
from slicelock.servers.life import network_of, sockets_of, sockets_on
from slicelock_agent.backends.base import BackendContext, Estimate, Report, Served, Subject, Truth
from slicelock_agent.backends.http_records import ServerRecords, has_ended
from slicelock_agent.processes import family

SAVE_SHARE, UNDO_SHARE = 0.65, 0.3
"""How much of a deadline going to sleep may take, and the way back if one server does not."""


@dataclass(eq=False, slots=True)
class Host:
    """A process with servers. By URL: what is to be undone, whether it was seen asleep, who speaks to it."""

    records: dict[str, SleepRecord]
    asleep: dict[str, bool] = field(default_factory=dict[str, bool])
    servers: dict[str, ModelServer] = field(default_factory=dict[str, ModelServer])
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)


class HttpBackend:
    """Questions to the model servers of a subject: sleep is its `save`, waking its `restore`.

    It keeps no bytes, and what servers say is no proof: whether a device was freed is for the accelerator to
    tell. All servers of a subject sleep or none; what was found asleep stays so.
    """

    name = "http"

    def __init__(self, context: BackendContext) -> None:
        settings = context.settings
        self._records = ServerRecords(settings.state_dir / f"{settings.pool}.{settings.node}.servers")
        self._hosts: dict[str, Host] = {}

    def preflight(self, devices: Sequence[str]) -> list[str]:
        return []

    def estimate(self, subject: Subject) -> Estimate:
        return Estimate()  # servers take the memory that their owner gave them when they were started

    async def lock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def save(self, subject: Subject, deadline: float) -> Report:
        async with self._alone(subject):
            if failures := _strangers(subject.servers):
                return Report(failures=failures)
            servers = [self._server(one) for one in subject.servers]
            return Report(failures=await fleet.offload(servers, deadline * SAVE_SHARE, deadline * UNDO_SHARE))

    async def restore(self, subject: Subject, deadline: float) -> Report:
        async with self._alone(subject):
            begun = [one for one in subject.servers if self._server(one).record.steps]
            failures = _strangers(begun)
            servers = [self._server(one) for one in begun if one.plan.url not in failures]
            return Report(failures=failures | await fleet.wake(servers, deadline * (SAVE_SHARE + UNDO_SHARE)))

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        return Truth.UNKNOWN  # a repetition does no harm

    async def discard(self, subject: Subject) -> None:
        return

    @asynccontextmanager
    async def _alone(self, subject: Subject) -> AsyncGenerator[None]:
        """Nobody else speaks to these servers meanwhile: one may have memory on two slices."""
        async with AsyncExitStack() as stack:
            for process in sorted({one.target.process for one in subject.servers}):
                await stack.enter_async_context(self._host(process).alone)
            yield

    def _host(self, process: str) -> Host:
        if process not in self._hosts:
            for gone in [one for one in self._hosts if has_ended(one)]:
                del self._hosts[gone]
            self._hosts[process] = Host(self._records.read(process))
        return self._hosts[process]

    def _server(self, seen: Served) -> ModelServer:
        """Who speaks to a server. What is to be undone stays known when its owner describes it anew."""
        host, url = self._host(seen.target.process), seen.plan.url
        host.asleep[url] = seen.asleep
        if url not in host.servers or host.servers[url].plan != seen.plan:
            host.servers[url] = self._meet(seen, host)
        return host.servers[url]

    def _meet(self, seen: Served, host: Host) -> ModelServer:
        plan, process = seen.plan, seen.target.process
        plan.address.warn_of_strangers()
        record = host.records.setdefault(plan.url, SleepRecord())

        def note() -> None:
            self._records.write(process, host.records)

        http = HttpClient(plan.address, plan.timeout)
        if plan.kind is Kind.VLLM:
            return Vllm(VllmHttp(http), plan, record, note)
        return Sglang(http, plan, lambda: host.asleep[plan.url], record=record, note=note)


def _strangers(servers: Sequence[Served]) -> dict[str, str]:
    """Why some of these must not be spoken to, by URL: it may be another's server that would answer."""
    return {one.plan.url: why for one in servers if (why := _stranger(one))}


def _stranger(one: Served) -> str:
    address, pid = one.plan.address, one.target.pid
    if not address.on_this_machine:
        return "it is not on this machine, so this agent does not speak to it"
    if network_of(pid) != network_of("self"):
        return "its process is in another network namespace, so this agent cannot tell who would answer"
    listening = sockets_on(address.port)
    if not listening:
        return f"nobody listens on port {address.port}"
    if not listening <= sockets_of(family([pid])):
        return f"another process listens on port {address.port}, so nothing is sent there"
    return ""
