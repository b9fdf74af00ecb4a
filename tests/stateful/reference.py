"""What the scripts should do: the rules in plain Python, without Redis, written for reading.

It keeps no record twice and looks at everything each time, so it is slow and obvious. `rules.py` has the
scripts themselves; here is what they share: the state, time, who is next, and how things end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slicelock.keys import request_id
from tests.stateful.state import (
    DAY,
    DEFAULT_LEASE,
    EPOCH_PATIENCE,
    FORGET_RUN,
    HEAD_START,
    HEARD,
    MAX_STEP,
    OPEN,
    SWITCH_PATIENCE,
    Block,
    Request,
    Run,
    Slice,
)


class Pool:
    """The state of one pool, and the rules that all scripts share."""

    def __init__(self) -> None:
        self.raw: int = 0
        self.last_raw: int | None = None
        self.pool = self.tick = self.quiet_until = 0
        self.life, self.epoch = "", 1
        self.asking = ""
        self.lease_ms: int | None = None
        self.reports: dict[tuple[str, str], Mapping[str, Any]] = {}  # by node and slice, the last
        self.gone: set[tuple[str, str]] = set()  # processes that an agent has seen end
        self.slices: dict[str, Slice] = {}
        self.requests: dict[str, Request] = {}
        self.runs: dict[str, Run] = {}
        self.silent: dict[str, bool] = {}
        self.deadlines: dict[str, int] = {}

    # ------------------------------------------------------------ time

    def begin(self, raw: int, life: str, told: int) -> None:
        """What every script does first."""
        self.raw = raw
        step = raw - (self.last_raw if self.last_raw is not None else raw)
        if 0 <= step <= MAX_STEP:
            self.pool += step
        self.last_raw = raw
        self.asking = ""  # the request whose member asks for it right now
        if self.life not in ("", life) or told > self.epoch:
            self.epoch = max(self.epoch, told) + 1
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
        """It cannot start, since one of its slices is blocked or kept, or another one settles, or since it is
        to be tried again later: it holds nobody up."""
        return request.later or any(
            self.is_blocked(name, request.run)
            or self.slices[name].kept
            or (name != here and self.slices[name].settling is not None)
            for name in request.slices
        )

    def is_free(self, name: str, request: Request) -> bool:
        s, blocked = self.slices[name], self.is_blocked(name, request.run)
        return s.state == "free" and s.settling is None and not (s.kept or blocked or request.later)

    def startable(self, request: Request) -> bool:
        for name in request.slices:
            if not self.is_free(name, request):
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

    def forgettable(self, name: str) -> bool:
        """Its fence is one that nodes refuse, and none has admitted it: the clock was far ahead."""
        s, limit = self.slices[name], (self.raw + DAY) * 1024
        return bool(s.nodes) and s.state == "free" and s.admitted <= limit < s.fence

    def start(self, request: Request) -> None:
        if forgotten := [name for name in request.slices if self.forgettable(name)]:
            for name in forgotten:
                self.unsettle(name)
            return
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
        self.unkeep(request.id)
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

    def part(self, request: Request, member: str, given: set[str], outcome: str = "") -> None:
        """A member's part ends, of all ("*") or some slices; before its begin, the request ends for all. One
        of an earlier epoch may have begun: it goes on without the member, or begins so."""
        held = request.state == "held"
        if not held and request.epoch == self.epoch:
            self.finish(request, outcome or "cancelled")
            return
        request.joined.setdefault(member, "-")
        request.yielded.setdefault(member, set()).update(given)
        live = request.live
        back = {name for name in live if self.all_have_yielded(request, name)}
        if back == {*live}:
            self.finish(request, outcome or ("yielded" if held else "cancelled"))
            return
        if request.state == "gathering":
            if len(request.joined) < request.members:
                return
            request.state = "queued"
        for name in back if held else ():
            request.gone.add(name)
            self.release(name, request)
        if all(request.has_yielded(member, name) for name in live):
            self.undue(f"part|{request.id}|{member}")

    def all_have_yielded(self, request: Request, name: str) -> bool:
        return sum(request.has_yielded(one, name) for one in request.joined) >= request.members

    def heard_of_other(self, request: Request, member: str, process: str) -> bool:
        """Whether another live process is this member of a request."""
        other = request.joined.get(member, "-")
        heard = self.runs[request.run].heard.get(other) if other not in ("-", process) else None
        return heard is not None and self.pool - heard < HEARD

    def done(
        self, run: str, lane: str, k: int, member: str, members: int, *, process: str, gave_up: bool = False
    ) -> None:
        """This member has finished every turn up to the k-th, acknowledged or not; or it gave that one up."""
        self.disown_until(run, lane, k, member, members)
        for request in self.open_of(run, lane):
            if request.k > k or not request.takes_part(member):
                continue
            if self.heard_of_other(request, member, process):
                continue
            if gave_up and request.k == k and request.state != "held":
                self.finish(request, "cancelled")
            elif not request.has_yielded(member):
                self.part(request, member, {"*"})

    def keep(self, name: str, request: str) -> None:
        """For a turn that may be running."""
        self.slices[name].kept, self.slices[name].disowned = request, set()
        self.due(f"kept|{name}", self.lease())

    def unkeep_slice(self, name: str) -> None:
        self.slices[name].kept, self.slices[name].disowned = "", set()
        self.undue(f"kept|{name}")

    def unkeep(self, request: str) -> None:
        for name, s in self.slices.items():
            if s.kept == request:
                self.unkeep_slice(name)

    def disown(self, name: str, member: str, members: int) -> None:
        """A member does not hold the turn that a slice is kept for; when each has said so, nobody does."""
        s = self.slices[name]
        s.disowned.add(member)
        if len(s.disowned) >= members:
            self.unkeep_slice(name)

    def disown_until(self, run: str, lane: str, k: int, member: str, members: int) -> None:
        for name, s in self.slices.items():
            if s.kept:
                kept_run, kept_lane, kept_k = s.kept.split("/")
                if (kept_run, kept_lane) == (run, lane) and int(kept_k) <= k:
                    self.disown(name, member, members)

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
        s.unclaimed = s.kept or s.unclaimed
        self.unkeep_slice(name)
        if self.forgettable(name):
            s.fence = s.admitted
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
        turn = self.shown_by_all(shown, top) if shown else ""
        if not grown and turn != s.unclaimed:
            turn = ""
        if request is not None and turn == request.id:  # it was granted again, under a later fence
            request.fences[name] = top
        elif request is not None and shown:
            agreed = all((one["run"], one["fence"]) == (request.run, s.fence) for one in shown)
            if grown or (request.state == "held" and not agreed):
                self.overtaken(name, request)
                request = None
        s.settling, s.fence, s.reported, s.unclaimed = None, top, {}, ""
        self.undue(f"settle|{name}")
        if request is not None and request.state == "switching":
            s.ready = set()
        if request is None and turn:
            self.keep(name, turn)

    def shown_by_all(self, shown: list[Any], top: int) -> str:
        """The turn that all nodes show as the latest grant, if they agree on one."""
        turns = {(one["run"], one["lane"], one["k"], one["fence"]) for one in shown}
        run, lane, k, fence = turns.pop()
        return request_id(run, lane, k) if not turns and run and fence == top else ""

    def overtaken(self, name: str, request: Request) -> None:
        """A later turn was found on one slice. A turn goes on without it: it may have yielded this one. A
        switch waits again, and its other slices are kept: it may have become such a turn."""
        live = request.live
        if len(live) < 2:
            self.finish(request, "superseded")
        elif request.state == "held":
            request.gone.add(name)
            self.release(name, request)
        else:
            self.requeue(request)
            for other in live:
                if other != name:
                    self.keep(other, request.id)
