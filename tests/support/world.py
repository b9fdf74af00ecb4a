"""Members of runs and agents of nodes, played by hand at the level of scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from slicelock import wire
from slicelock.keys import request_id
from slicelock.picture import Picture, SliceView
from tests.support.scripts import Backup, Scripts
from tests.support.stored import record
from tests.support.wait import wait_until

LEASE_MS, WAIT_MS, SILENT_MS = 60_000, 15_000, 10_000


class World:
    """One pool with its slices, its runs and its nodes' agents."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts, self.client, self.keys = scripts, scripts.client, scripts.keys
        self.agents: dict[str, Agent] = {}
        self.lives = 1

    def run(self, command: wire.ScriptCall) -> Any:
        return self.scripts.run(command)

    def declare(self, name: str, *nodes: str, **settings: object) -> None:
        """Declare a slice; each node has one device, named after the slice. No nodes: agentless."""
        devices = {node: [f"sim:{name}"] for node in nodes}
        assert self.run(wire.Declare(name, devices, settings)).outcome == "OK"
        for node in nodes:
            self.agent(node).shown.setdefault(name, Shown())

    def agent(self, node: str) -> Agent:
        return self.agents.setdefault(node, Agent(self, node))

    def member(self, run: str, member: str = "0", *, of: int = 1, lane: str = "main") -> Member:
        return Member(self, run, member, of, lane)

    def serve(self, rounds: int = 3) -> None:
        """Let every agent do what is wanted of it."""
        for _ in range(rounds):
            for agent in self.agents.values():
                agent.serve()

    def advance(self, ms: int) -> None:
        """Let time pass with everybody's agents beating."""
        while ms > 0:
            step = min(ms, 4_000)
            self.scripts.advance(step)
            self.beat()
            ms -= step

    def new_epoch(self, backup: Backup | None = None) -> None:
        """The server starts anew or another takes over: with everything, or as of a backup."""
        if backup is not None:
            self.scripts.restore(backup)
        self.lives += 1
        self.scripts.new_run_id(f"life{self.lives}")

    def settle(self) -> None:
        """After a new epoch: the agents beat until what they serve has settled."""
        self.beat()
        self.advance(2_000)
        assert not [one.name for one in self.picture().slices if one.settling and one.nodes]

    def beat(self) -> None:
        """Every agent beats."""
        for agent in self.agents.values():
            if agent.alive:
                agent.beat()

    # ------------------------------------------------------------ looking

    def picture(self) -> Picture:
        return Picture.of(self.keys.pool, self.run(wire.Status()).picture)

    def slice(self, name: str) -> SliceView:
        return next(one for one in self.picture().slices if one.name == name)

    def record(self, key: str) -> dict[str, str]:
        return record(self.client, key)

    def request(self, request: str) -> dict[str, str]:
        return self.record(self.keys.request(request))

    def state(self, request: str) -> str:
        """A request's state, or its outcome once it has ended; empty when there is none."""
        facts = self.request(request)
        return facts.get("outcome") if facts.get("state") == "ended" else facts.get("state", "")  # type: ignore[return-value]

    def queue(self, name: str) -> list[str]:
        return [one.decode() for one in cast(list[bytes], self.client.zrange(self.keys.queue(name), 0, -1))]

    def events(self, kind: str = "") -> list[dict[str, str]]:
        """What has happened, oldest first."""
        rows = cast(list[tuple[bytes, dict[bytes, bytes]]], self.client.xrange(self.keys.events))
        every = [{k.decode(): v.decode() for k, v in facts.items()} for _, facts in rows]
        return [facts for facts in every if kind in ("", facts["type"])]

    def dump(self) -> dict[str, object]:
        """Everything stored, without the clock and the record of what happened."""
        return dump(self.scripts)


IGNORED = ("test:clock", "test:run_id", "events", "meta")


def dump(scripts: Scripts) -> dict[str, object]:
    """Every key of the pool with its value."""
    client, prefix = scripts.client, scripts.keys.prefix
    names = sorted(
        key.decode() for key in client.scan_iter(match=prefix.replace("{", r"\{") + "*", count=1000)
    )
    names = [name for name in names if name.removeprefix(prefix) not in IGNORED]
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.type(name)
        kinds = pipe.execute()
        read = {b"set": pipe.smembers, b"string": pipe.get}
        for name, kind in zip(names, kinds, strict=True):
            if kind == b"zset":
                pipe.zrange(name, 0, -1, withscores=True)
            else:
                read[kind](name)
        values = [json.loads(value) if isinstance(value, bytes) else value for value in pipe.execute()]
    return dict(zip((name.removeprefix(prefix) for name in names), values, strict=True))


@dataclass
class Member:
    """One process of a run, which takes turns in one lane."""

    world: World
    run: str
    member: str
    of: int = 1
    lane: str = "main"
    k: int = 0
    slices: tuple[str, ...] = ()
    fences: dict[str, int] = field(default_factory=dict[str, int])
    yielded: tuple[str, ...] = ()
    lease_ms: int = LEASE_MS
    wait_ms: int = WAIT_MS
    hooks: tuple[Any, ...] = ()
    generation: int = 0

    @property
    def job(self) -> str:
        return f"job-{self.run}"

    @property
    def process(self) -> str:
        """A made-up process identity."""
        return f"boot:1:{self.run}-{self.member}:{self.generation}"

    @property
    def id(self) -> str:
        return request_id(self.run, self.lane, self.k)

    @property
    def state(self) -> str:
        return self.world.state(self.id)

    def ask(self, *slices: str, **facts: Any) -> wire.AcquireReply:
        """Ask for the next turn."""
        self.k, self.slices, self.fences, self.yielded = self.k + 1, slices, {}, ()
        return self.again(**facts)

    def again(self, **facts: Any) -> wire.AcquireReply:
        """Repeat the last `ask`, and learn where it stands."""
        command = self.acquire_command(**facts)
        reply = self.world.run(command)
        if reply.outcome == "HELD":
            self.fences = dict(reply.fences)
        return reply

    def acquire_command(self, **facts: Any) -> wire.Acquire:
        given: dict[str, Any] = {
            **{"run": self.run, "job": self.job, "lane": self.lane, "k": self.k, "member": self.member},
            **{"members": self.of, "slices": tuple(sorted(self.slices)), "process": self.process},
            **{"lease_ms": self.lease_ms, "wait_ms": self.wait_ms},
        }
        return wire.Acquire(**(given | facts))

    def hold(self, *slices: str, **facts: Any) -> None:
        """Ask, let the agents serve, and be told HELD."""
        reply = self.ask(*slices, **facts)
        if reply.outcome != "HELD":
            self.world.serve()
            reply = self.again(**facts)
        assert reply.outcome == "HELD", reply

    def part(self, **facts: Any) -> dict[str, Any]:
        """This member's part as its heartbeat names it."""
        return {
            **{"lane": self.lane, "k": self.k, "member": self.member, "members": self.of},
            **{"slices": sorted(self.slices), "phase": "", "priority": 0, "fences": self.fences},
            **{"yielded": list(self.yielded)},
            **facts,
        }

    def renew(
        self, *parts: Mapping[str, Any], done: int | None = None, gave_up: bool = False, **report: Any
    ) -> wire.RenewReply:
        """Heartbeat. Without `parts`, of the present turn; `done` is the last turn that was finished, or was
        given up."""
        sent = list(parts) if parts or done is not None else [self.part()]
        report = {"parts": sent, **report}
        if done is not None:
            word = {"k": done, "member": self.member, "members": self.of, "gave_up": gave_up}
            report["done"] = {self.lane: word}
        return self.world.run(self.renew_command(report))

    def renew_command(self, report: Mapping[str, Any]) -> wire.Renew:
        return wire.Renew(self.run, self.job, self.process, self.lease_ms, self.wait_ms, report)

    def beats(self) -> dict[str, Any]:
        """Heartbeat, and what it says of the present turn."""
        [part] = self.renew().parts
        return part

    def yield_(self, *slices: str) -> wire.YieldReply:
        """End this member's part, of the whole turn or of some slices."""
        self.yielded = (*self.yielded, *(slices or self.slices))
        given = tuple(sorted(slices))
        return self.world.run(wire.Yield(self.run, self.lane, self.k, self.member, given, self.of))

    def cancel(self, k: int | None = None, why: str = "") -> wire.Reply:
        return self.world.run(wire.Cancel(self.run, self.job, self.lane, self.k if k is None else k, why))

    def register(self, *slices: str, gone: bool = False) -> wire.RegisterReply:
        return self.world.run(
            wire.Register(self.run, self.job, self.process, 1000, slices, list(self.hooks), gone)
        )


@dataclass
class Shown:
    """What an agent knows of one slice on its node."""

    run: str = ""
    lane: str = ""
    k: int = 0
    fence: int = 0
    top: int = 0
    doing: str = ""
    saved: list[str] = field(default_factory=list[str])

    def report(self) -> dict[str, Any]:
        loaded = [self.run] if self.run else []
        return {
            **{"run": self.run, "lane": self.lane, "k": self.k, "fence": self.fence, "top": self.top},
            **{"doing": self.doing, "saved": self.saved, "loaded": loaded},
        }

    def admit(self, wanted: Mapping[str, Any]) -> None:
        """Evict what is loaded and load what is wanted, at once."""
        fence = int(wanted["fence"])
        assert fence >= self.top, f"asked to admit {fence} after {self.top}"
        moved = self.run not in ("", wanted["run"])
        self.saved = [
            run for run in {*self.saved, self.run} - {"", wanted["run"]} if moved or run in self.saved
        ]
        self.run, self.lane, self.k = wanted["run"], wanted["lane"], int(wanted["k"])
        self.fence, self.top = fence, max(self.top, fence)


@dataclass
class Agent:
    """The agent of one node."""

    world: World
    node: str
    agent: str = "boot:j@host"
    alive: bool = True
    shown: dict[str, Shown] = field(default_factory=dict[str, Shown])
    known: dict[str, int] = field(default_factory=dict[str, int])

    def beat(
        self,
        results: Iterable[Mapping[str, Any]] = (),
        exits: Iterable[Mapping[str, Any]] = (),
        commands: Iterable[Mapping[str, Any]] = (),
    ) -> wire.BeatReply:
        return self.world.run(self.beat_command(results, exits, commands))

    def beat_command(
        self,
        results: Iterable[Mapping[str, Any]] = (),
        exits: Iterable[Mapping[str, Any]] = (),
        commands: Iterable[Mapping[str, Any]] = (),
    ) -> wire.Beat:
        report = {
            "slices": {name: shown.report() for name, shown in self.shown.items()},
            "results": list(results),
            "exits": list(exits),
            "commands": list(commands),
            "known": self.known,
        }
        return wire.Beat(self.node, self.agent, "0.1.0", SILENT_MS, report)

    def wanted(self) -> dict[str, Any]:
        return cast(dict[str, Any], self.beat().wanted)

    def serve(self) -> list[str]:
        """Beat, admit what is wanted, report READY; the outcome of each report."""
        if not self.alive:
            return []
        done = [
            self.admit(name, wanted)
            for name, wanted in self.wanted().items()
            if name in self.shown and is_wanted(wanted)
        ]
        return list(self.beat(results=done).results) if done else []

    def admit(self, name: str, wanted: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
        """Load what is wanted; the READY to report."""
        self.shown[name].admit(wanted)
        return ready(name, int(wanted["fence"]), **facts)

    def report(self, name: str, fence: int, outcome: str = "READY", **facts: Any) -> str:
        """Report one result, with a beat; OK or STALE."""
        [answer] = self.beat(results=[ready(name, fence, outcome=outcome, **facts)]).results
        return answer

    def exited(self, *members: Member) -> None:
        """Tell that processes are gone."""
        self.beat(exits=[{"run": member.run, "process": member.process} for member in members])

    def restart(self) -> None:
        """The agent's process starts anew; what it knew of runs is gone, its journal is not."""
        self.known = {}


def ready(name: str, fence: int, **facts: Any) -> dict[str, Any]:
    """A result of a beat's report."""
    given = {
        **{"slice": name, "fence": fence, "outcome": "READY", "what": "", "reason": "", "run": ""},
        **{"moved": False, "bytes": 0, "seconds": 0},
    }
    return given | facts


def is_wanted(wanted: Mapping[str, Any]) -> bool:
    """Whether an agent has to admit a run here now."""
    return wanted.get("state") == "switching" and not int(wanted["settling"])


class Ear:
    """Hears a pool's hints: `heard()` returns those since the last time, as (channel, message)."""

    def __init__(self, world: World) -> None:
        self._prefix = world.keys.prefix + "ch:"
        self._pubsub = world.client.pubsub()
        self._pubsub.psubscribe(self._prefix.replace("{", r"\{") + "*")
        wait_until(self._pubsub.get_message)

    def heard(self) -> list[tuple[str, str]]:
        self._pubsub.ping()
        found: list[tuple[str, str]] = []
        while (message := wait_until(self._pubsub.get_message))["type"] != "pong":
            found.append((message["channel"].decode().removeprefix(self._prefix), message["data"].decode()))
        return found

    def close(self) -> None:
        self._pubsub.close()


def hold_together(pair: tuple[Member, Member], *slices: str) -> None:
    """Have both members of a run ask for a turn, and begin it."""
    m0, m1 = pair
    m0.ask(*slices)
    m1.ask(*slices)
    assert (m0.again().outcome, m1.again().outcome) == ("HELD", "HELD")
