"""What a heartbeat says of a turn: that it goes on, or was lost by the server and is held again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slicelock import wire
from slicelock.keys import request_id
from tests.stateful.reference import Pool
from tests.stateful.state import Request, Run

Answer = dict[str, Any]


class Renewals(Pool):
    """The rules of one part of a renew."""

    def renew_part(self, c: wire.Renew, part: Mapping[str, Any]) -> Answer | Request:
        request = self.requests.get(request_id(c.run, part["lane"], part["k"]))
        if request and request.state == "ended":
            return request
        missing = self.missing(request, part, request_id(c.run, part["lane"], part["k"]))
        if missing:
            verdict = self.reassert(c, part, request, missing)
            if verdict:
                return verdict
            request = self.requests.get(request_id(c.run, part["lane"], part["k"]))
        if request is None:
            return {"state": "UNKNOWN"}
        member = part["member"]
        if member not in request.joined and (request.state != "held" or not request.takes_part(member)):
            return {"state": "UNKNOWN"}
        if request.joined.get(member, "-") not in ("-", c.process) and not part["fences"]:
            return {"state": "UNKNOWN"}
        request.joined[member] = c.process
        if request.state == "held" and part["yielded"]:
            self.part(request, member, set(part["yielded"]))
        if request.state != "ended" and not request.has_yielded(member):
            self.due(f"part|{request.id}|{member}", c.lease_ms if request.state == "held" else c.wait_ms)
        return request

    def missing(self, request: Request | None, part: Mapping[str, Any], name: str) -> list[str]:
        """The slices that this member was told it holds, has not given back, and Redis does not show so."""
        held = request is not None and request.state == "held"
        return [
            s
            for s, fence in part["fences"].items()
            if s not in part["yielded"]
            and not (request is not None and request.has_yielded(part["member"], s))
            and not (held and self.slices[s].request == name and self.slices[s].fence == fence)
        ]

    def reassert(
        self, c: wire.Renew, part: Mapping[str, Any], request: Request | None, missing: list[str]
    ) -> Answer | None:
        """None when the turn stands."""
        name = request_id(c.run, part["lane"], part["k"])
        claims = self.claims(name, part, request, missing)
        if claims:
            self.hold_again(c, part, request, claims)
            return None
        if request and request.state == "switching" and request.fences.items() >= part["fences"].items():
            return None
        if any(self.slices[s].settling is not None for s in missing):
            return {"state": "UNKNOWN"}
        if request:
            self.part(request, part["member"], {"*"}, "superseded")
        return {"state": "LOST", "outcome": "superseded"}

    def claims(
        self, name: str, part: Mapping[str, Any], request: Request | None, missing: list[str]
    ) -> list[str]:
        """What the turn has again; nothing when something of it is missing for good."""
        open_to_it = {s for s, fence in part["fences"].items() if self.may_claim(name, s, fence)}
        gone = request.gone - {*missing} if request else set[str]()
        switches = request is not None and request.state == "switching"
        its = {s for s in part["fences"] if switches and self.slices[s].request == name}
        return sorted(open_to_it - gone) if open_to_it >= {*missing, *its} else []

    def may_claim(self, name: str, s: str, fence: int) -> bool:
        """Nobody has had the slice since; or its nodes show as done what is a switch to this turn."""
        found, run = self.slices[s], name.partition("/")[0]
        if found.settling is not None or found.kept == name:
            return fence >= found.fence
        shown = [self.reports.get((node, s), {"run": "", "fence": 0}) for node in found.nodes]
        done = all((one["run"], one["fence"]) == (run, fence) for one in shown)
        return found.request == name and fence == found.fence and done

    def hold_again(
        self, c: wire.Renew, part: Mapping[str, Any], request: Request | None, claims: list[str]
    ) -> None:
        name = request_id(c.run, part["lane"], part["k"])
        for s in claims:
            other = self.requests.get(self.slices[s].request)
            if other and other.id != name:
                self.overtaken(s, other)
        for other in self.open_of(c.run, part["lane"]):
            if other.k < part["k"]:
                self.finish(other, "superseded")
        for s in claims:
            self.unkeep_slice(s)
            found = self.slices[s]
            found.state, found.request, found.fence = "held", name, part["fences"][s]
            found.ready = set(found.nodes)
        if request is None:
            request = Request(
                *(c.run, part["lane"], part["k"], tuple(part["slices"]), part["members"], part["priority"]),
                *(c.lease_ms, c.wait_ms, self.pool * 4096),
            )
            self.requests[name] = request
        self.undue(f"switch|{name}")
        request.state, request.lease_ms, request.wait_ms = "held", c.lease_ms, c.wait_ms
        request.slices, request.members = tuple(part["slices"]), part["members"]
        request.gone = {s for s in request.slices if self.slices[s].request != name}
        request.fences.update(part["fences"])
        request.joined[part["member"]] = c.process
        newest = self.runs.setdefault(c.run, Run()).newest
        newest[part["lane"]] = max(newest.get(part["lane"], 0), part["k"])
        if part["members"] > 1:
            self.due(f"gather|{name}", c.lease_ms)
