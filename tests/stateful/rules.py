"""The scripts over the reference: arguments as in `wire`, of the answers what members and agents act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slicelock import wire
from slicelock.keys import request_id
from tests.stateful.renewals import Answer, Renewals
from tests.stateful.state import DAY, FIRST_BEAT, FORGET_RUN, MAX_RETRY, Block, Request, Run, Slice


class Reference(Renewals):
    """A pool that commands can be run on."""

    def run(self, command: wire.ScriptCall, raw: int, life: str, told: int) -> Answer:
        """What the script answers: `outcome`, and what matters of the rest."""
        self.begin(raw, life, told)
        answer = getattr(self, f"run_{command.script}")(command)
        self.go_on()
        return answer() if callable(answer) else answer

    # ------------------------------------------------------------ acquire

    def run_acquire(self, c: wire.Acquire) -> Any:
        refusal = self.refuse_member(c) or self.refuse_slices(c)
        if refusal:
            return refusal
        self.done(c.run, c.lane, c.k - 1, c.member, c.members, process=c.process)
        request = self.requests.get(request_id(c.run, c.lane, c.k))
        refusal = self.refuse_join(request, c) if request else self.refuse_open(c)
        if refusal:
            return refusal
        request = request or self.open_request(c)
        self.asking = request.id
        self.join(request, c)
        self.go_on()
        if c.no_wait and request.state == "queued":
            self.finish(request, "cancelled")
            return {"outcome": "BUSY"}
        if request.state != "ended" and not request.has_yielded(c.member):
            ms = request.lease_ms if request.state == "held" else request.wait_ms
            self.due(f"part|{request.id}|{c.member}", ms)
        return lambda: self.answer(request)

    def refuse_member(self, c: wire.Acquire) -> Answer | None:
        for request in self.open_of(c.run, c.lane):
            other = request.joined.get(c.member, "-")
            if other in ("-", c.process) or request.has_yielded(c.member):
                continue
            if self.heard_of_other(request, c.member, c.process):
                return {"outcome": "TAKEN"}
            self.exited(c.run, other)
        return None

    def refuse_slices(self, c: wire.Acquire) -> Answer | None:
        for name in c.slices:
            if name not in self.slices:
                return {"outcome": "NO_SUCH_SLICE"}
            if c.run in self.runs and name in self.runs[c.run].lost:
                return {"outcome": "RUN_LOST"}
        return None

    def refuse_join(self, request: Request, c: wire.Acquire) -> Answer | None:
        if request.state == "ended":
            return self.answer(request)
        if (request.slices, request.members) != (c.slices, c.members):
            return {"outcome": "MISMATCH"}
        if not request.takes_part(c.member):
            return {"outcome": "LATE"}
        return None

    def refuse_open(self, c: wire.Acquire) -> Answer | None:
        newest = self.runs[c.run].newest.get(c.lane, 0) if c.run in self.runs else 0
        return {"outcome": "ENDED", "newest": newest} if c.k <= newest else None

    def open_request(self, c: wire.Acquire) -> Request:
        self.tick = max(self.pool * 4096, self.tick + 1)
        tick = self.tick - c.waited_ms * 4096
        request = Request(
            *(c.run, c.lane, c.k, c.slices, c.members, c.priority, c.lease_ms, c.wait_ms, tick, self.epoch)
        )
        self.requests[request.id] = request
        self.lease_ms = max(c.lease_ms, self.lease_ms or 0)
        self.known_run(c.run).newest[c.lane] = c.k
        return request

    def known_run(self, run: str) -> Run:
        if run not in self.runs:
            self.runs[run] = Run()
            self.due(f"run|{run}", FORGET_RUN)
        return self.runs[run]

    def join(self, request: Request, c: wire.Acquire) -> None:
        request.joined[c.member] = c.process
        its = [name for name, s in self.slices.items() if s.kept == request.id]  # who asks does not hold it
        for name in its:
            self.disown(name, c.member, request.members)
        was_its = any(not self.slices[name].kept for name in its)
        if request.state == "gathering" and len(request.joined) == request.members:
            request.state = "queued"
        if was_its and request.state == "queued" and all(self.is_free(s, request) for s in request.slices):
            self.start(request)

    def answer(self, request: Request) -> Answer:
        """Where a request stands."""
        match request.state:
            case "held" if any(self.slices[name].settling is not None for name in request.live):
                return {"outcome": "SWITCHING"}
            case "held":
                return {"outcome": "HELD", "fences": {name: request.fences[name] for name in request.live}}
            case "ended":
                newest = self.runs[request.run].newest.get(request.lane, 0)
                return {"outcome": "ENDED", "ended": request.outcome, "newest": newest}
            case "queued":
                ranks = [self.queue(name).index(request) for name in request.slices]
                return {"outcome": "QUEUED", "position": max(ranks)}
            case "gathering":
                return {"outcome": "GATHERING", "missing": request.members - len(request.joined)}
            case state:
                return {"outcome": state.upper()}

    # ------------------------------------------------------------ yield, cancel, register, revoke

    def run_yield(self, c: wire.Yield) -> Any:
        request = self.requests.get(request_id(c.run, c.lane, c.k))
        if not c.slices:
            self.disown_until(c.run, c.lane, c.k, c.member, c.members)
        if request is None:
            return {"outcome": "ALREADY"}
        if request.state == "ended":
            done = request.outcome in ("yielded", "cancelled") or request.has_yielded(c.member)
            return {"outcome": "ALREADY"} if done else {"outcome": "LOST", "ended": request.outcome}
        asked = c.slices or request.slices
        fresh = any(name in request.slices and not request.has_yielded(c.member, name) for name in asked)
        if not fresh or not request.takes_part(c.member):
            return {"outcome": "ALREADY"}
        self.part(request, c.member, set(c.slices) or {"*"})
        waiters = sum(len(self.queue(name)) for name in asked)
        back = request.state == "ended" or not set(asked) & set(request.live)
        return {"outcome": "YIELDED", "waiters": waiters} if back else {"outcome": "PARTIAL"}

    def run_cancel(self, c: wire.Cancel) -> Answer:
        request = self.requests.get(request_id(c.run, c.lane, c.k))
        newest = self.runs[c.run].newest.get(c.lane, 0) if c.run in self.runs else 0
        self.unkeep(request_id(c.run, c.lane, c.k))
        if (request and request.state == "ended") or (not request and c.k <= newest):
            return {"outcome": "ALREADY"}
        if request is None:
            request = Request(c.run, c.lane, c.k, (), 0, 0, 0, 0, 0)
            self.requests[request.id] = request
            self.known_run(c.run).newest[c.lane] = c.k
        self.finish(request, "cancelled")
        return {"outcome": "CANCELLED"}

    def run_register(self, c: wire.Register) -> Any:
        if c.gone:
            self.exited(c.run, c.process)
            return {"outcome": "OK"}
        if (c.run, c.process) in self.gone:
            return {"outcome": "OK"}
        run = self.runs.setdefault(c.run, Run())
        run.heard[c.process] = self.pool
        self.due(f"run|{c.run}", FORGET_RUN)
        return {"outcome": "OK"}

    def run_revoke(self, c: wire.Revoke) -> Answer:
        request = self.requests.get(c.request)
        if request is None or request.state == "ended":
            return {"outcome": "ENDED"}
        if not c.requeue:
            self.finish(request, "revoked")
        elif request.state == "switching":
            self.requeue(request)
        else:
            return {"outcome": "NOT_SWITCHING"}
        return {"outcome": "REVOKED"}

    def run_drain(self, c: wire.Drain) -> Answer:
        if not c.draining:
            self.slices[c.slice].blocked.pop("*", None)
        else:
            self.block(c.slice, "*", Block("drain"))
        return {"outcome": "OK"}

    def run_declare(self, c: wire.Declare) -> Answer:
        """Only for a slice that is new."""
        self.slices[c.slice] = Slice(tuple(sorted(c.nodes)))
        for node in c.nodes:
            if node not in self.silent:
                self.silent[node] = False
                self.due(f"node|{node}", FIRST_BEAT)
        if c.nodes:
            self.unsettle(c.slice)
        return {"outcome": "OK"}

    # ------------------------------------------------------------ renew

    def run_renew(self, c: wire.Renew) -> Any:
        for lane, done in c.report.get("done", {}).items():
            member, members, gave_up = done["member"], done["members"], done["gave_up"]
            self.done(c.run, lane, done["k"], member, members, process=c.process, gave_up=gave_up)
        told: list[Answer | Request] = []
        for part in c.report["parts"]:
            self.done(c.run, part["lane"], part["k"] - 1, part["member"], part["members"], process=c.process)
            told.append(self.renew_part(c, part))
        run = self.runs.get(c.run)
        if run is not None:
            if c.process in run.heard:
                run.heard[c.process] = self.pool
            self.due(f"run|{c.run}", FORGET_RUN)
        return lambda: {"outcome": "OK", "parts": [self.part_state(one) for one in told]}

    def part_state(self, told: Answer | Request) -> Answer:
        if not isinstance(told, Request):
            return told
        if told.state == "ended":
            return {"state": "LOST", "outcome": told.outcome}
        return {"state": told.state}

    # ------------------------------------------------------------ beat

    def run_beat(self, c: wire.Beat) -> Any:
        self.silent[c.node] = False
        self.due(f"node|{c.node}", c.silent_ms)
        for s in self.slices.values():
            if c.node in s.blocked and s.blocked[c.node].kind == "silent":
                del s.blocked[c.node]
        for name, shown in c.report["slices"].items():
            if name in self.slices and c.node in self.slices[name].nodes:
                self.take_report(name, c.node, shown)
        results = self.take_results(c.node, c.report["results"])
        for gone in c.report["exits"]:
            if gone["run"] in self.runs and gone["process"] in self.runs[gone["run"]].heard:
                self.gone.add((gone["run"], gone["process"]))
            self.exited(gone["run"], gone["process"])
        return lambda: {"outcome": "OK", "results": results, "wanted": self.wanted(c.report["slices"])}

    def run_results(self, c: wire.Results) -> Answer:
        return {"outcome": "OK", "results": self.take_results(c.node, c.results)}

    def take_results(self, node: str, results: Iterable[Mapping[str, Any]]) -> list[str]:
        return [self.take_result(node, result) for result in results]

    def take_report(self, name: str, node: str, shown: Mapping[str, Any]) -> None:
        s = self.slices[name]
        why = s.blocked.get(node)
        if not 0 <= shown["top"] <= max((self.raw + DAY) * 1024, s.fence):
            self.block(name, node, Block("fence"))
            return
        self.reports[node, name] = shown
        gone = why and why.kind == "evict" and why.run and why.run not in shown["loaded"]
        if why and (why.kind == "fence" or gone):
            del s.blocked[node]
            s.tries.pop(node, None)
        if s.settling is not None:
            s.reported.pop(node, None)
            if not shown["doing"]:
                s.reported[node] = dict(shown)
            self.settle(name)
        s.admitted = max(s.admitted, shown["top"])
        if s.settling is None and s.state != "held" and shown["top"] > s.fence:
            s.fence = shown["top"]
            if s.state == "switching":
                self.requeue(self.requests[s.request])

    def take_result(self, node: str, result: Mapping[str, Any]) -> str:
        s = self.slices.get(result["slice"])
        if s is None or node not in s.nodes or s.settling is not None:
            return "STALE"
        if s.state != "switching" or s.fence != result["fence"]:
            return "STALE"
        request = self.requests[s.request]
        if result["outcome"] == "READY":
            s.ready.add(node)
            s.admitted = s.fence
            s.tries.pop(node, None)
            self.try_hold(request)
        elif result["what"] == "evict":
            tries = s.tries[node] = s.tries.get(node, 0) + 1
            wait = min(1000 * 2**tries, MAX_RETRY)
            self.block(result["slice"], node, Block("evict", result["run"], self.pool + wait))
            self.due(f"retry|{result['slice']}", wait)
            self.requeue(request)
        elif result["what"] == "later":
            request.later, request.tries = True, request.tries + 1
            self.due(f"later|{request.id}", min(1000 * 2**request.tries, MAX_RETRY))
            self.requeue(request)
        else:
            if result["what"] == "restore":
                self.runs[request.run].lost.add(result["slice"])
            self.finish(request, "failed")
        return "OK"

    def wanted(self, names: Mapping[str, Any]) -> Answer:
        return {
            name: (s.state, s.fence, s.request, s.settling is not None)
            for name in names
            if (s := self.slices.get(name)) is not None
        }
