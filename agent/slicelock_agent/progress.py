"""How far a step is that moves state. For people only: nothing is decided by it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slicelock_agent.reconcile import Action, Stay, Step

MOVES = {Step.EVICT: "evicting", Step.RESTORE: "restoring", Step.RELOAD: "restoring"}


@dataclass(frozen=True, slots=True)
class Progress:
    """One step: whose state it moves, and how many bytes were in use on the devices when it began.

    The bytes moved are what memory shows, whoever moves them: hooks, the driver, a server.
    """

    step: str
    run: str
    total: int
    used: int
    begun: float = field(default_factory=time.monotonic)

    def told(self, used: int) -> dict[str, Any]:
        """What a beat reports, when `used` bytes are in use now."""
        moved = self.used - used if self.step == MOVES[Step.EVICT] else used - self.used
        most = self.total or moved
        facts = {"step": self.step, "run": self.run, "bytes": self.total, "moved": max(0, min(moved, most))}
        return {**facts, "seconds": round(time.monotonic() - self.begun, 3)}


def progress_of(action: Action, stay: Stay | None, used: int) -> Progress | None:
    """The beginning of a step that moves state; None for one that moves none."""
    if action.step not in MOVES:
        return None
    total = used if action.step is Step.EVICT else stay.bytes if stay else 0
    return Progress(MOVES[action.step], action.run, total, used)


def bytes_used(devices: Mapping[str, Any]) -> int:
    """The bytes in use on all devices together, as they were last read."""
    return sum(int(facts.get("used") or 0) for facts in devices.values())
