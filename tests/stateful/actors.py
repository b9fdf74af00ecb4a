"""Members and agents as they behave in the field: they know what they were told, and repeat what got lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slicelock import wire
from slicelock.keys import request_id
from tests.stateful.state import DAY
from tests.support.world import LEASE_MS, SILENT_MS, WAIT_MS, Shown, is_wanted, ready


@dataclass
class Member:
    """One lane of one process: idle, asking, in a turn, or leaving it (its yield was not acknowledged)."""

    process: Process
    lane: str = "main"
    k: int = 0
    asked: int = 0  # the last turn that this process has asked for itself
    state: str = "idle"
    slices: tuple[str, ...] = ()
    priority: int = 0
    fences: dict[str, int] = field(default_factory=dict[str, int])
    yielded: set[str] = field(default_factory=set[str])
    evicted: bool = False  # its state was taken off a device in its turn

    @property
    def run(self) -> str:
        return self.process.run

    @property
    def id(self) -> str:
        return request_id(self.run, self.lane, self.k)

    @property
    def done(self) -> int:
        """The last turn that this member has finished, acknowledged or not."""
        return self.k if self.state in ("idle", "leaving") else self.k - 1

    def says_done(self) -> dict[str, Any]:
        """What its heartbeat says of that: what it asked for and was not told of has not begun for it."""
        p, gave_up = self.process, self.done == self.asked and not self.fences
        return {"k": self.done, "member": p.member, "members": p.of, "gave_up": gave_up}

    def ask(self, slices: tuple[str, ...], priority: int) -> None:
        self.k, self.state, self.slices, self.priority = self.k + 1, "asking", slices, priority
        self.asked = self.k
        self.fences, self.yielded, self.evicted = {}, set(), False

    def acquire(self, *, no_wait: bool = False) -> wire.Acquire:
        p = self.process
        return wire.Acquire(
            *(p.run, p.job, self.lane, self.k, p.member, p.of, self.slices, p.identity, LEASE_MS, WAIT_MS),
            priority=self.priority,
            no_wait=no_wait,
        )

    def part(self) -> dict[str, Any]:
        return {
            **{"lane": self.lane, "k": self.k, "member": self.process.member, "members": self.process.of},
            **{"slices": list(self.slices), "phase": "", "priority": self.priority, "fences": self.fences},
            "yielded": sorted(self.yielded),
        }

    def yields(self, *names: str) -> wire.Yield:
        return wire.Yield(self.run, self.lane, self.k, self.process.member, names, self.process.of)

    def cancels(self) -> wire.Cancel:
        return wire.Cancel(self.run, self.process.job, self.lane, self.k)

    def told(self, reply: wire.AcquireReply) -> bool:
        """Take in an answer; True when the turn has begun with it."""
        if self.state != "asking" or reply.outcome in ("SWITCHING", "QUEUED", "GATHERING", "TAKEN"):
            return False
        if reply.outcome == "HELD":
            self.state, self.fences = "turn", dict(reply.fences)
            return True
        self.state = "idle"
        self.k = max(self.k, reply.newest)
        return False


@dataclass
class Process:
    """One process of a run."""

    run: str
    member: str = "0"
    of: int = 1
    lanes: tuple[str, ...] = ("main",)
    generation: int = 0
    turns: dict[str, Member] = field(default_factory=dict[str, Member])

    def __post_init__(self) -> None:
        self.turns = {lane: Member(self, lane) for lane in self.lanes}

    @property
    def job(self) -> str:
        return f"job-{self.run}"

    @property
    def identity(self) -> str:
        return f"boot:1:{self.run}-{self.member}:{self.generation}"

    def renew(self) -> wire.Renew:
        """All of its lanes: what they ask for or hold, and what they are done with."""
        parts = [one.part() for one in self.turns.values() if one.state in ("asking", "turn")]
        done = {lane: one.says_done() for lane, one in self.turns.items() if one.k}
        report = {"parts": parts, "done": done, "answers": []}
        return wire.Renew(self.run, self.job, self.identity, LEASE_MS, WAIT_MS, report)

    def register(self, *, gone: bool = False) -> wire.Register:
        return wire.Register(self.run, self.job, self.identity, 1000, ("a", "b"), [], gone)

    def start_anew(self) -> None:
        """It died, and another process takes its place, which knows nothing."""
        self.generation += 1
        self.turns = {lane: Member(self, lane) for lane in self.lanes}

    def learn(self, lanes: Mapping[str, Any]) -> None:
        """Go on after the newest turns, or join what gathers without this member."""
        for lane, newest in lanes.items():
            joins = newest["state"] == "gathering" and self.member not in newest["joined"]
            self.turns[lane].k = int(newest["k"]) - (1 if joins else 0)


@dataclass
class Node:
    """One node's agent."""

    name: str
    shown: dict[str, Shown]
    wanted: dict[str, Any] = field(default_factory=dict[str, Any])
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    exits: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    ahead_ms: int = 0  # by which its clock is ahead

    def beat(self) -> wire.Beat:
        report = {
            "slices": {name: shown.report() for name, shown in self.shown.items()},
            **{"results": list(self.results), "exits": list(self.exits), "commands": [], "known": {}},
        }
        return wire.Beat(self.name, "boot", "0.1.0", SILENT_MS, report)

    def in_haste(self) -> wire.Results:
        return wire.Results(self.name, "boot", list(self.results))

    def heard(self, reply: wire.BeatReply) -> None:
        """What a beat reported has arrived."""
        self.results.clear()
        self.exits.clear()
        self.wanted = dict(reply.wanted)

    def has_work(self, name: str) -> bool:
        """Something is wanted on this slice, not yet done, and not below what was admitted already."""
        wanted = self.wanted.get(name)
        if not wanted or not is_wanted(wanted):
            return False
        fence = int(wanted["fence"])
        return fence >= self.shown[name].top and (name, fence) not in {
            (r["slice"], r["fence"]) for r in self.results
        }

    def takes(self, name: str, fence: int, now_ms: int) -> bool:
        """It is not far ahead of this node's clock, nor of what it has admitted."""
        return fence <= max((now_ms + self.ahead_ms) * 1024, self.shown[name].top) + DAY * 1024

    def work(self, name: str, how: str, now_ms: int) -> str:
        """Do what is wanted, or fail at it; the run that was evicted, if any."""
        wanted, shown = self.wanted[name], self.shown[name]
        fence = int(wanted["fence"])
        before = shown.run
        if not self.takes(name, fence, now_ms):
            self.results.append(ready(name, fence, outcome="FAILED", what="evict", reason="far ahead"))
            return ""
        if how == "evict" and before not in ("", wanted["run"]):
            self.results.append(
                ready(name, fence, outcome="FAILED", what="evict", reason="stuck", run=before)
            )
            return ""
        # What is there already needs no room.
        if how == "later" and (before, shown.fence) != (wanted["run"], fence):
            facts = {"what": "later", "reason": "no room", "run": wanted["run"]}
            self.results.append(ready(name, fence, outcome="FAILED", **facts))
            return ""
        if how in ("restore", "refused"):
            shown.run, shown.fence = "", 0
            self.results.append(ready(name, fence, outcome="FAILED", what=how, reason="broken"))
            return before
        if fence == shown.top:
            same = (shown.run, shown.lane, shown.k) == (wanted["run"], wanted["lane"], int(wanted["k"]))
            assert same or not before, f"one fence for two turns on {name}: {shown} and {wanted}"
        shown.admit(wanted)
        self.results.append(ready(name, fence, moved=before != wanted["run"]))
        return before if before != wanted["run"] else ""

    def restart(self) -> None:
        """The agent's process ends and another one starts: it has only its journal."""
        self.wanted = {}
        self.results.clear()

    def unload(self, run: str) -> None:
        """The run's processes are gone, and their device state with them."""
        for shown in self.shown.values():
            if shown.run == run:
                shown.run, shown.fence = "", 0
