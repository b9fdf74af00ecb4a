"""The real scripts and the reference side by side: every answer and every effect of a call are the same."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from slicelock import wire
from slicelock.states import TRANSITIONS, RequestState
from tests.stateful.observed import difference, of_reference
from tests.stateful.renewals import Answer
from tests.stateful.rules import Reference
from tests.stateful.state import DAY
from tests.support import invariants
from tests.support.scripts import Backup, Scripts
from tests.support.stored import Seen, stored


class Pair:
    """A pool twice."""

    def __init__(self, scripts: Scripts) -> None:
        self.scripts = scripts
        self.reference = Reference()
        self.seen: Seen = {}
        self.lives = 1
        self._floor: dict[str, int] = {}
        self._states: dict[str, RequestState] = {}

    def run(self, command: wire.ScriptCall, told: int = 0) -> wire.Reply:
        """Run a command on both, of a caller that was told this epoch, and compare the answers and what is
        stored afterwards."""
        reply = self.scripts.run(command, told)
        self.seen = stored(self.scripts.client, self.scripts.keys)
        answer = self.reference.run(command, self.scripts.now_ms, self.scripts.run_id, told)
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
            self._restore(checkpoint)
        self.lives += 1
        self.scripts.new_run_id(f"life{self.lives}")

    def be_back(self, checkpoint: tuple[Backup, Reference]) -> None:
        """The server of a checkpoint again: in the life of that time, with what it knew then."""
        self._restore(checkpoint)
        self.scripts.new_run_id(self.reference.life)

    def _restore(self, checkpoint: tuple[Backup, Reference]) -> None:
        backup, reference = checkpoint
        self.scripts.restore(backup)
        self.reference = copy.deepcopy(reference)
        self._floor.clear()
        self._states.clear()

    def check(self) -> None:
        """What is stored makes sense, no fence fell, and nobody waits who could start."""
        invariants.check(self.seen)
        for name, s in self.seen["slices"].items():
            assert s["fence"] >= self._floor.get(name, 0) or self.forgotten(name), f"the fence of {name} fell"
            self._floor[name] = s["fence"]
        for name, request in self.seen["requests"].items():
            new = RequestState(request["state"])
            old = self._states.get(name, new)
            assert new in _reachable(old), f"{name} went from {old} to {new}"
            self._states[name] = new
        for request in self.reference.requests.values():
            if request.state == "queued":
                assert not self.reference.startable(request), f"{request.id} could start and waits"

    def forgotten(self, name: str) -> bool:
        """The fence was too far ahead for any node, and is not below what any has admitted."""
        s, limit = self.seen["slices"][name], (self.scripts.now_ms + DAY) * 1024
        return (
            bool(self.reference.slices[name].nodes)
            and s["admitted"] <= s["fence"] <= limit < self._floor[name]
        )


@cache
def _reachable(state: RequestState) -> set[RequestState]:
    """The states that one script may bring a request to: several steps of the chart, or none."""
    found = {state}
    while more := {RequestState(new) for old in found for new in TRANSITIONS[RequestState][old]} - found:
        found |= more
    return found


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
