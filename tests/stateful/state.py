"""What the reference remembers: slices, requests and runs, and the numbers of the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slicelock.keys import request_id

OPEN = ("gathering", "queued", "switching", "held")
EPOCH_PATIENCE, MAX_STEP, SWITCH_PATIENCE, FIRST_BEAT = 2_000, 5_000, 10_000, 10_000
HEARD, FORGET_RUN, MAX_RETRY = 12_000, 600_000, 60_000
HEAD_START, DEFAULT_LEASE, DAY = 30_000, 60_000, 86_400_000


@dataclass
class Block:
    """Why one node holds up a slice."""

    kind: str
    run: str = ""
    until: int = 0


@dataclass
class Slice:
    nodes: tuple[str, ...]
    state: str = "free"
    fence: int = 0
    admitted: int = 0
    request: str = ""
    ready: set[str] = field(default_factory=set[str])
    settling: int | None = None
    reported: dict[str, Any] = field(default_factory=dict[str, Any])
    blocked: dict[str, Block] = field(default_factory=dict[str, Block])
    tries: dict[str, int] = field(default_factory=dict[str, int])
    kept: str = ""
    disowned: set[str] = field(default_factory=set[str])
    unclaimed: str = ""


@dataclass
class Request:
    run: str
    lane: str
    k: int
    slices: tuple[str, ...]
    members: int
    priority: int
    lease_ms: int
    wait_ms: int
    tick: int
    epoch: int = 0
    state: str = "gathering"
    outcome: str = ""
    later: bool = False
    tries: int = 0
    joined: dict[str, str] = field(default_factory=dict[str, str])
    yielded: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    gone: set[str] = field(default_factory=set[str])
    fences: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def id(self) -> str:
        return request_id(self.run, self.lane, self.k)

    @property
    def live(self) -> list[str]:
        """The slices not given back."""
        return [s for s in self.slices if s not in self.gone]

    def has_yielded(self, member: str, name: str = "*") -> bool:
        given = self.yielded.get(member, set())
        return "*" in given or name in given

    def takes_part(self, member: str) -> bool:
        """It has joined, or members have still to come, or to come back after a failover."""
        return member in self.joined or len(self.joined) < self.members


@dataclass
class Run:
    newest: dict[str, int] = field(default_factory=dict[str, int])
    lost: set[str] = field(default_factory=set[str])
    heard: dict[str, int] = field(default_factory=dict[str, int])
