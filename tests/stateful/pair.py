"""The real scripts and the reference side by side: every answer and every effect of a call are the same."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from slicelock import wire
from tests.stateful.observed import Seen, difference, of_reference, of_server
from tests.stateful.rules import Answer, Reference
from tests.support.scripts import Backup, Scripts


class Pair:
    """A pool twice."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.reference = Reference()
        self.seen: Seen = {}
        self.lives = 1
        self._floor: dict[str, int] = {}

    def run(self, command: wire.Command) -> wire.Reply:
        """Run a command on both, and compare the answers and what is stored afterwards."""
        reply = self.scripts.run(command)
        self.seen = of_server(self.scripts)
        notices = self.seen["time"][1] != self.reference.epoch
        answer = self.reference.run(command, self.scripts.now_ms, self.scripts.run_id, notices)
        told = _told(reply, answer)
        assert told == answer, f"{command}: the server answers {told}, the reference {answer}"
        lines = difference(self.seen, of_reference(self.reference))
        assert not lines, "\n".join((f"after {command}:", *lines))
        self.check()
        return reply

    # ------------------------------------------------------------ a new life

    def checkpoint(self) -> tuple[Backup, Reference]:
        return self.scripts.backup(), copy.deepcopy(self.reference)

    def fail_over(self, checkpoint: tuple[Backup, Reference] | None) -> None:
        """Another life of the server, with everything or without what came after a checkpoint."""
        if checkpoint is not None:
            backup, reference = checkpoint
            self.scripts.restore(backup)
            self.reference = copy.deepcopy(reference)
            self._floor.clear()
        self.lives += 1
        self.scripts.new_run_id(f"life{self.lives}")

    # ------------------------------------------------------------ invariants

    def check(self) -> None:
        """The invariants of the design that a picture of the pool can show."""
        slices, requests = self.seen["slices"], self.seen["requests"]
        for name, s in slices.items():
            assert s["fence"] >= self._floor.get(name, 0), f"the fence of {name} fell"
            self._floor[name] = s["fence"]
            self._check_slice(name, s, requests)
        for name, request in requests.items():
            self._check_request(name, request)
        self._check_waiting()

    def _check_slice(self, name: str, s: Mapping[str, Any], requests: Mapping[str, Any]) -> None:
        if s["state"] == "free":
            assert s["request"] == "", f"{name} is free and has {s['request']}"
            assert name not in self.seen["ready"]
            return
        holder = requests[s["request"]]
        assert holder["state"] == s["state"] or (holder["state"], s["state"]) == ("held", "switching"), name
        assert name in holder["slices"]
        assert name not in holder["gone"], f"{s['request']} has given {name} back and has it"

    def _check_request(self, name: str, request: Mapping[str, Any]) -> None:
        if request["state"] in ("switching", "held"):
            assert len(request["joined"]) == request["members"] or request["state"] == "held"
            for s in set(request["slices"]) - set(request["gone"]):
                assert self.seen["slices"][s]["request"] == name, f"{name} has not all of its slices: {s}"
        places = {s for s, queue in self.seen["queues"].items() if name in dict(queue)}
        wanted = set(request["slices"]) if request["state"] == "queued" else set[str]()
        assert places == wanted, f"{name} is {request['state']} and in the queues of {places}"
        is_open = name in self.seen["runs"].get(name.partition("/")[0], {"open": []})["open"]
        assert is_open == (request["state"] != "ended"), name

    def _check_waiting(self) -> None:
        reference = self.reference
        for request in reference.requests.values():
            if request.state == "queued":
                assert not reference.startable(request), f"{request.id} could start and waits"
        if any(self.seen["queues"].values()):
            busy = (
                s["state"] != "free" or s["settling"] or s["kept"] or s["blocked"]
                for s in self.seen["slices"].values()
            )
            assert any(busy), "somebody waits for nothing"


def _told(reply: wire.Reply, answer: Answer) -> Answer:
    """Of a reply, what the reference answers."""
    told = {name: getattr(reply, name) for name in answer}
    if "fences" in told:
        told["fences"] = dict(told["fences"])
    if "wanted" in told:
        told["wanted"] = {name: _wanted(raw) for name, raw in told["wanted"].items() if int(raw["known"])}
    if "parts" in told:
        parts = cast(list[Answer], told["parts"])
        told["parts"] = [
            {k: part.get(k) for k in wanted} for part, wanted in zip(parts, answer["parts"], strict=True)
        ]
    if "results" in told:
        told["results"] = list(told["results"])
    return told


def _wanted(raw: Mapping[str, Any]) -> tuple[str, int, str, bool]:
    return raw["state"], int(raw["fence"]), raw.get("request") or "", bool(int(raw["settling"]))
