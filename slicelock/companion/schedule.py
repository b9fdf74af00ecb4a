"""When the companion does what. Pure: the clock is an argument, in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slicelock.retry import Retry

SETTLING_S = 0.25  # a turn that a new epoch has not confirmed is asked about so often
HURRY_S = 0.02  # between two heartbeats that a message asks for


@dataclass(slots=True)
class Schedule:
    """Heartbeats every `renew_s`, at once when something calls for one; retries of each kind of work."""

    renew_s: float
    beat_at: float = -math.inf
    last_beat: float = -math.inf
    beat: Retry = field(default_factory=Retry)
    listen: Retry = field(default_factory=Retry)
    deliver: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        self.beat.longest_s = min(self.renew_s, self.beat.longest_s)

    def beaten(self, now: float, *, soon: bool) -> None:
        """A heartbeat was answered; `soon`: the answer was not final."""
        self.beat.succeeded()
        self.last_beat = now
        self.beat_at = now + (min(SETTLING_S, self.renew_s) if soon else self.renew_s)

    def missed(self, now: float) -> None:
        """A heartbeat was not answered."""
        self.beat.failed(now)
        self.beat_at = self.beat.at

    def hurry(self, now: float) -> None:
        """Something calls for a heartbeat now, unless Redis does not answer anyway."""
        if not self.beat.failures:
            self.beat_at = min(self.beat_at, max(now, self.last_beat + HURRY_S))

    def begin_anew(self) -> None:
        """Redis can be reached again, as far as is known: try everything now."""
        for retry in (self.beat, self.listen, self.deliver):
            retry.at = -math.inf
        self.beat_at = -math.inf

    def at_once(self, now: float) -> None:
        """There is something to tell: a heartbeat now, unless Redis does not answer anyway."""
        if not self.beat.failures:
            self.beat_at = now

    def beat_due(self, now: float) -> bool:
        return now >= self.beat_at
