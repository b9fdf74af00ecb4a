"""What the scripts should do: the rules in plain Python, without Redis, written for reading.

It keeps no record twice and looks at everything each time, so it is slow and obvious. `rules.py` has the
scripts themselves; here is what they share: the state, time, who is next, and how things end.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    request: str = ""
    ready: set[str] = field(default_factory=set[str])
    settling: int | None = None
    reported: dict[str, Any] = field(default_factory=dict[str, Any])
    blocked: dict[str, Block] = field(default_factory=dict[str, Block])
    tries: dict[str, int] = field(default_factory=dict[str, int])
    kept: str = ""


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


@dataclass
class Run:
    newest: dict[str, int] = field(default_factory=dict[str, int])
    lost: set[str] = field(default_factory=set[str])
    heard: dict[str, int] = field(default_factory=dict[str, int])


class Pool:
    """The state of one pool, and the rules that all scripts share."""

    def __init__(self) -> None:
        self.raw: int = 0
        self.last_raw: int | None = None
        self.pool = self.tick = self.quiet_until = 0
        self.life, self.epoch = "", 1
        self.asking = ""
        self.lease_ms: int | None = None
        self.gone: set[tuple[str, str]] = set()  # processes that an agent has seen end
        self.slices: dict[str, Slice] = {}
        self.requests: dict[str, Request] = {}
        self.runs: dict[str, Run] = {}
        self.silent: dict[str, bool] = {}
        self.deadlines: dict[str, int] = {}

    # ------------------------------------------------------------ time

    def begin(self, raw: int, life: str) -> None:
        """What every script does first."""
        self.raw = raw
        step = raw - (self.last_raw if self.last_raw is not None else raw)
        if 0 <= step <= MAX_STEP:
            self.pool += step
        self.last_raw = raw
        self.asking = ""  # the request whose member asks for it right now
        if self.life not in ("", life):
            self.epoch += 1
            self.quiet_until = self.pool + self.lease()
            for name in self.slices:
                self.unsettle(name)
        self.life = life
        self.reap()

    def lease(self) -> int:
        return DEFAULT_LEASE if self.lease_ms is None else self.lease_ms

    def due(self, what: str, in_ms: int) -> None:
        self.deadlines[what] = self.pool + in_ms

    def undue(self, what: str) -> None:
        self.deadlines.pop(what, None)

    def reap(self) -> None:
        passed = sorted((at, what) for what, at in self.deadlines.items() if at < self.pool)
        for _, what in passed:
            del self.deadlines[what]
        for _, what in passed:
            kind, _, rest = what.partition("|")
            getattr(self, f"on_{kind}")(rest)
        if passed:
            self.go_on()

    def on_part(self, what: str) -> None:
        request = self.requests.get(what.rpartition("|")[0])
        if request is None or request.state == "ended":
            return
        if self.pool < self.quiet_until:
            self.deadlines[f"part|{what}"] = self.quiet_until
        else:
            self.finish(request, "expired")

    def on_gather(self, request: str) -> None:
        found = self.requests[request]
        if found.state == "ended" or len(found.joined) >= found.members:
            return
        if self.pool < self.quiet_until:
            self.deadlines[f"gather|{request}"] = self.quiet_until
        else:
            self.finish(found, "expired")

    def on_settle(self, name: str) -> None:
        self.settle(name)

    def on_kept(self, name: str) -> None:
        self.unkeep_slice(name)

    def on_node(self, node: str) -> None:
        self.silent[node] = True
        for name, s in self.slices.items():
            if node in s.nodes:
                self.block(name, node, Block("silent"))

    def on_retry(self, name: str) -> None:
        for node, why in list(self.slices[name].blocked.items()):
            if why.kind == "evict":
                if why.until > self.pool:
                    self.deadlines[f"retry|{name}"] = why.until
                else:
                    self.slices[name].blocked.pop(node)

    def on_later(self, request: str) -> None:
        self.requests[request].later = False

    def on_switch(self, request: str) -> None:
        found = self.requests[request]
        if found.state == "switching" and any(self.is_blocked(s, found.run) for s in found.slices):
            self.requeue(found)

    def on_run(self, run: str) -> None:
        if any(self.open_of(run)):
            self.due(f"run|{run}", FORGET_RUN)
        else:
            self.runs.pop(run, None)

    # ------------------------------------------------------------ who is next

    def score(self, request: Request) -> int:
        return request.tick - request.priority * HEAD_START * 4096

    def queue(self, name: str) -> list[Request]:
        waiting = [r for r in self.requests.values() if r.state == "queued" and name in r.slices]
        return sorted(waiting, key=lambda r: (self.score(r), r.id))

    def is_blocked(self, name: str, run: str) -> bool:
        """For everybody but a run that could not be evicted: it is there already."""
        return any(not (why.run and why.run == run) for why in self.slices[name].blocked.values())

    def passed_over(self, request: Request, here: str) -> bool:
        """It cannot start, since one of its slices is blocked or kept for another or another one settles, or
        since it is to be tried again later: it holds nobody up."""
        return request.later or any(
            self.is_blocked(name, request.run)
            or self.slices[name].kept not in ("", request.id)
            or (name != here and self.slices[name].settling is not None)
            for name in request.slices
        )

    def startable(self, request: Request) -> bool:
        if request.later:
            return False
        for name in request.slices:
            s = self.slices[name]
            if s.state != "free" or s.settling is not None or self.is_blocked(name, request.run):
                return False
            if s.kept and not s.kept == request.id == self.asking:
                return False
            queue = self.queue(name)
            ahead = queue[: queue.index(request)]
            if not all(self.passed_over(other, name) for other in ahead):
                return False
        return True

    def go_on(self) -> None:
        """Everything that can start starts."""
        while ready := next(
            (r for r in self.requests.values() if r.state == "queued" and self.startable(r)), None
        ):
            self.start(ready)

    def start(self, request: Request) -> None:
        request.state = "switching"
        for name in request.slices:
            s = self.slices[name]
            self.unkeep_slice(name)
            s.state, s.request, s.ready = "switching", request.id, set()
            s.fence = request.fences[name] = max(s.fence + 1, self.raw * 1024)
        self.try_hold(request)

    def try_hold(self, request: Request) -> None:
        if any(set(self.slices[name].nodes) - self.slices[name].ready for name in request.live):
            return
        request.state = "held"
        for name in request.live:
            self.slices[name].state = "held"
        self.extend(request, min(request.wait_ms, request.lease_ms))
        self.undue(f"switch|{request.id}")

    def extend(self, request: Request, ms: int) -> None:
        for member in request.joined:
            if not request.has_yielded(member):
                self.due(f"part|{request.id}|{member}", ms)

    # ------------------------------------------------------------ how things end

    def open_of(self, run: str, lane: str | None = None) -> Iterator[Request]:
        for request in list(self.requests.values()):
            if request.run == run and request.state in OPEN and lane in (None, request.lane):
                yield request

    def release(self, name: str, request: Request) -> None:
        s = self.slices[name]
        if s.request == request.id:
            s.state, s.request, s.ready = "free", "", set()

    def finish(self, request: Request, outcome: str) -> None:
        request.state, request.outcome = "ended", outcome
        for name in request.slices:
            self.release(name, request)
        for what in list(self.deadlines):
            kind, _, whose = what.partition("|")
            if kind in ("part", "gather", "switch", "later") and f"{whose}|".startswith(f"{request.id}|"):
                self.undue(what)

    def requeue(self, request: Request) -> None:
        for name in request.slices:
            self.release(name, request)
        request.state = "queued"
        self.undue(f"switch|{request.id}")
        self.extend(request, request.wait_ms)

    def part(self, request: Request, member: str, given: set[str]) -> None:
        """A member's part ends, of all ("*") or some slices; before its begin, the request ends for all."""
        if request.state != "held":
            self.finish(request, "cancelled")
            return
        request.joined.setdefault(member, "-")
        request.yielded.setdefault(member, set()).update(given)
        live = request.live
        for name in live:
            if sum(request.has_yielded(other, name) for other in request.joined) >= request.members:
                request.gone.add(name)
                self.release(name, request)
        if all(request.has_yielded(member, name) for name in live):
            self.undue(f"part|{request.id}|{member}")
        if not request.live:
            self.finish(request, "yielded")

    def done(self, run: str, lane: str, k: int, member: str) -> None:
        """This member has finished every turn up to the k-th, acknowledged or not."""
        self.unkeep(run, lane, k)
        for request in self.open_of(run, lane):
            if request.k > k or request.has_yielded(member):
                continue
            if member in request.joined or request.state == "held":
                self.part(request, member, {"*"})
            elif request.state == "gathering":
                self.finish(request, "cancelled")

    def unkeep_slice(self, name: str) -> None:
        self.slices[name].kept = ""
        self.undue(f"kept|{name}")

    def unkeep(self, run: str, lane: str, k: int) -> None:
        for name, s in self.slices.items():
            if s.kept:
                kept_run, kept_lane, kept_k = s.kept.split("/")
                if (kept_run, kept_lane) == (run, lane) and int(kept_k) <= k:
                    self.unkeep_slice(name)

    def exited(self, run: str, process: str) -> None:
        """A process of a run is gone: its parts end; with the last one everything of the run does."""
        found = self.runs.get(run)
        if found is None or found.heard.pop(process, None) is None:
            return
        for request in self.open_of(run):
            its = (m for m, p in request.joined.items() if p == process and not request.has_yielded(m))
            if not found.heard or any(its):
                self.finish(request, "holder_died")
        self.due(f"run|{run}", FORGET_RUN)

    # ------------------------------------------------------------ blocked and settling

    def block(self, name: str, node: str, why: Block) -> None:
        s = self.slices[name]
        s.blocked[node] = why
        if why.kind != "drain" and s.state == "switching" and len(self.requests[s.request].slices) > 1:
            self.due(f"switch|{s.request}", SWITCH_PATIENCE)

    def unsettle(self, name: str) -> None:
        s = self.slices[name]
        self.unkeep_slice(name)
        s.settling = self.pool + (EPOCH_PATIENCE if s.nodes else self.lease())
        s.reported = {}
        self.deadlines[f"settle|{name}"] = s.settling

    def settle(self, name: str) -> None:
        """All nodes have said what they show: that decides about what is stored."""
        s = self.slices[name]
        if s.settling is None or set(s.reported) != set(s.nodes):
            return
        shown = list(s.reported.values())
        top = max([s.fence, *(report["top"] for report in shown)])
        if self.pool < s.settling and not (shown and top == 0):
            return
        grown = top > s.fence
        request = self.requests.get(s.request)
        if request is not None and shown:
            agreed = all((one["run"], one["fence"]) == (request.run, s.fence) for one in shown)
            if grown or (request.state == "held" and not agreed):
                self.overtaken(name, request)
                request = None
        s.settling, s.fence, s.reported = None, top, {}
        self.undue(f"settle|{name}")
        if request is not None and request.state == "switching":
            s.ready = set()
        turns = {(one["run"], one["lane"], one["k"], one["fence"]) for one in shown}
        if grown and len(turns) == 1:
            run, lane, k, fence = turns.pop()
            if run and fence == top:
                s.kept = request_id(run, lane, k)
                self.due(f"kept|{name}", self.lease())

    def overtaken(self, name: str, request: Request) -> None:
        """A later turn was found on one slice. A turn goes on without it: it may have yielded this one."""
        if request.state != "held" or request.live == [name]:
            self.finish(request, "superseded")
        else:
            request.gone.add(name)
            self.release(name, request)
