"""How one attempt of a switch has ended on this node, and how the whole switch has."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slicelock.logs import LogLine

log = logging.getLogger("slicelock_agent")

VERBS = {"evict": "switch", "restore": "restore", "refused": "admit", "later": "switch"}
"""What has failed, in words."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt to evict a run or to bring it back ended: it is `done`, or not and why.

    `recalled`: it is not wanted any more. `kept`: nothing is lost, it can be tried again.
    """

    done: bool
    bytes: int = 0
    reason: str = ""
    recalled: bool = False
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How a switch ended on this node, as a beat carries it."""

    slice: str
    fence: int
    outcome: str
    run: str
    what: str = ""
    reason: str = ""
    moved: bool = False
    bytes: int = 0
    seconds: float = 0.0
    steps: Sequence[Mapping[str, Any]] = ()
    busy: float | None = None

    def told(self) -> dict[str, Any]:
        facts = {
            name: getattr(self, name) for name in self.__slots__ if getattr(self, name) not in (None, ())
        }
        return {**facts, "seconds": round(self.seconds, 6)}

    def log(self, run: str, job: str) -> None:
        """One line: a node's part of a switch to a run has ended."""
        ready = self.outcome == "READY"
        level = logging.INFO if ready else logging.WARNING
        if log.isEnabledFor(level):
            about = {"slice": self.slice, "job": job, "run": run, "fence": self.fence}
            moved = {"bytes": self.bytes or None, "seconds": self.seconds, "reason": self.reason}
            log.log(level, LogLine("ready" if ready else f"failed to {VERBS[self.what]}", **about, **moved))
