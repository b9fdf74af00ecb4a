"""The mode `observe`: how long phases take, how much of the run the accelerators would be free, and what
sharing them with a like job would gain. No Redis."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from dataclasses import dataclass, field

from slicelock import estimate


@dataclass(slots=True)
class PhaseTotal:
    """The turns of one phase, in seconds."""

    turns: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Meter:
    """Turns as they would have been; times are monotonic seconds."""

    begun: float | None = None
    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    phases: dict[str, PhaseTotal] = field(default_factory=dict[str, PhaseTotal])

    def enter(self, now: float) -> None:
        """A turn begins."""
        if self.begun is None:
            self.begun = now

    def leave(self, phase: str, since: float, now: float) -> None:
        """A turn that began at `since` ends."""
        self.spans.append((since, now))
        seen = self.phases.setdefault(phase or "(no phase)", PhaseTotal())
        seen.turns += 1
        seen.seconds += now - since

    def report(self, job: str, now: float) -> str:
        """What was seen, and what sharing would gain."""
        if self.begun is None or now <= self.begun:
            return f"slicelock observed no turn of {job}."
        total, busy = now - self.begun, estimate.covered(self.spans)
        shared = estimate.together(total, busy)
        saved = estimate.saved(2 * total, shared)
        lines = [
            f"slicelock observed {job} for {total:.1f} s: the accelerators were in use {busy / total:.0%} "
            f"of the time ({busy:.1f} s in {len(self.spans)} turns).",
            *(
                f"  {name:<12} {phase.turns:>6} turns {phase.seconds:>10.1f} s  "
                f"{phase.seconds / phase.turns:>9.3f} s each"
                for name, phase in sorted(self.phases.items())
            ),
            f"Two such jobs that take turns would need {shared:.1f} s instead of "
            f"{2 * total:.1f} s one after the other: {saved:.0%} saved, without the time for switches.",
        ]
        return "\n".join(lines)


class Observer:
    """This process's meter, which reports when the interpreter ends."""

    def __init__(self, job: str) -> None:
        self.meter, self._job, self._pid = Meter(), job, os.getpid()
        atexit.register(self._print)

    def _print(self) -> None:
        if os.getpid() == self._pid:
            print(self.meter.report(self._job, time.monotonic()), file=sys.stderr)


_lock = threading.Lock()
_observer: Observer | None = None


def observer(job: str) -> Observer:
    """This process's observer; a child process has its own."""
    global _observer
    with _lock:
        if _observer is None:
            _observer = Observer(job)
        return _observer


def _after_fork() -> None:
    global _lock, _observer
    _lock, _observer = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)
