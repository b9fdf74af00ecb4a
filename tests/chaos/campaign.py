"""A campaign: harm after harm to a fleet at work, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from slicelock.keys import Keys
from tests.chaos.coordinator import Coordinator
from tests.chaos.faults import FAULTS
from tests.chaos.fleet import Fleet
from tests.support import invariants
from tests.support.server_binaries import binary_of
from tests.support.stored import stored
from tests.support.wait import wait_until

RECOVERY_S = 40.0
WHOLE_S = 60.0  # a primary that comes back is made a replica after two of the Sentinels' failover timeouts
EMPTY_S = 30.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Harm:
    """One fault: how long it lasted, and how long until every slice had begun two turns, both in seconds from
    its beginning."""

    lasted_s: float
    recovered_s: float


@dataclass
class Outcome:
    """What came of campaigns: harm by fault, and violations with the fault that they came after."""

    harms: dict[str, list[Harm]] = field(default_factory=dict[str, list[Harm]])
    violations: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    turns: int = 0
    failovers: int = 0
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        """Take in another campaign's outcome."""
        for name, harms in other.harms.items():
            self.harms.setdefault(name, []).extend(harms)
        self.violations += other.violations
        self.turns += other.turns
        self.failovers += other.failovers
        self.seconds += other.seconds


class Campaign:
    """Faults of these names, in an order that `dice` decide, on one fleet."""

    def __init__(self, fleet: Fleet, dice: Random, names: Sequence[str], tell: Tell) -> None:
        self.fleet, self.dice, self.names, self.tell = fleet, dice, names, tell
        self.outcome = Outcome()
        self._begun: dict[str, list[int]] = {name: [] for name in fleet.slices}

    def run(self, seconds: float, most: int | None = None) -> Outcome:
        """Do harm for so many seconds, or until so many faults, then see what is left."""
        began = time.monotonic()
        self._recovers("the start", time.monotonic_ns())
        for name in islice(self._deck(), most):
            if time.monotonic() - began > seconds:
                break
            self._harm(name)
        self._end()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _deck(self) -> Iterator[str]:
        """All faults in a new order over and over, so that each comes equally often."""
        while True:
            yield from self.dice.sample(self.names, len(self.names))

    def _harm(self, name: str) -> None:
        self.fleet.coordinator.wait_ready(WHOLE_S)
        primary, at = self.fleet.coordinator.primary, time.monotonic_ns()
        FAULTS[name](self.fleet, self.dice)
        lasted = (time.monotonic_ns() - at) / 1e9
        recovered = self._recovers(name, at)
        if recovered is not None:
            self.outcome.harms.setdefault(name, []).append(Harm(lasted, recovered))
            self.tell(f"{name}: {recovered:.2f} s")
        self.outcome.failovers += self.fleet.coordinator.primary is not primary
        self._survivors(name)

    def _recovers(self, name: str, at: int) -> float | None:
        """Seconds from `at` until every slice has begun two turns; a violation and None if they never do."""

        def recovered() -> float | None:
            self._listen(name)
            seconds = [[t for t in times if t > at][1:2] for times in self._begun.values()]
            return (max(t for (t,) in seconds) - at) / 1e9 if all(seconds) else None

        try:
            return wait_until(recovered, RECOVERY_S, "every slice begins two turns")
        except AssertionError as failure:
            self._violated(name, f"{failure}; {self._picture()}")
            return None

    def _listen(self, name: str) -> None:
        for actor, event in self.fleet.news():
            if event["event"] == "held":
                self.outcome.turns += 1
                for slice_ in event["slices"]:
                    self._begun[slice_].append(event["t_ns"])
            elif event["event"] == "lost" and actor.kept:
                self._violated(name, f"{actor.job.run} lost a turn: {event['why']}")

    def _survivors(self, name: str) -> None:
        for actor in self.fleet.kept:
            if not actor.alive:
                actor.kept = False
                self._violated(name, f"{actor.job.run} failed: {actor.job.errors.read_text()[-600:]}")
        for number, agent in enumerate(self.fleet.agents):
            if agent.process.poll() is not None:
                self._violated(name, f"the agent of n{number} ended: {agent.log()[-600:]}")
                self.fleet.restart_agent(number)

    def _end(self) -> None:
        self.fleet.coordinator.wait_ready(WHOLE_S)
        found = self.fleet.finish()
        for slice_ in self.fleet.slices:
            found += [f"{slice_}: {line}" for line in self.fleet.record(slice_).violations()]
        try:
            wait_until(self._nothing_left, EMPTY_S, "nothing is left behind")
        except AssertionError as failure:
            found.append(f"{failure}: {self._picture()}, {self.fleet.images()}")
        for what in found:
            self._violated("the end", what)

    def _nothing_left(self) -> bool:
        seen = self._stored()
        invariants.check(seen)
        busy = any(s["state"] != "free" for s in seen["slices"].values())
        waiting = any(seen["queues"].values()) or seen["gathering"]
        return not busy and not waiting and not self.fleet.images()

    def _picture(self) -> dict[str, Any]:
        slices = self._stored()["slices"]
        return {name: (s["state"], s["request"], s["blocked"]) for name, s in slices.items()}

    def _stored(self) -> dict[str, Any]:
        with self.fleet.coordinator.primary.client() as client:
            return stored(client, Keys("default"))

    def _violated(self, name: str, what: str) -> None:
        self.outcome.violations.append((name, what))
        self.tell(f"VIOLATION after {name!r}: {what}")


def campaign(
    folder: Path,
    kind: str,
    seed: int,
    names: Sequence[str],
    *,
    seconds: float,
    tell: Tell,
    most: int | None = None,
) -> Outcome:
    """One campaign on servers of this kind (`valkey` or `redis`), from nothing to nothing."""
    binary = binary_of(kind)
    assert binary, f"there is no {kind}-server"
    with Coordinator(binary) as coordinator, Fleet(coordinator, folder, seed) as fleet:
        return Campaign(fleet, Random(seed), names, tell).run(seconds, most)
