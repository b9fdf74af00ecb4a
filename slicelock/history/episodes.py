"""What a history is made of. Times are Redis' clock in ms; an end of None: it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from slicelock.events import StepFacts, steps_of

UNKNOWN = "unknown"
"""The outcome of what has ended without an event that is still there."""


@dataclass(slots=True)
class Turn:
    """A run's time on one slice."""

    slice: str
    request: str
    run: str
    job: str
    lane: str
    phase: str
    began_ms: int
    ended_ms: int | None = None
    outcome: str = ""


@dataclass(slots=True)
class Wait:
    """From a request to its turn, or to its end without one.

    `queued_ms`: when its last member had joined; None: it never had to queue, or still gathers. `granted_ms`:
    since when its slices have switched to it. `outcome`: `held`, or how it ended.
    """

    request: str
    run: str
    job: str
    lane: str
    phase: str
    slices: tuple[str, ...]
    asked_ms: int
    queued_ms: int | None = None
    granted_ms: int | None = None
    ended_ms: int | None = None
    outcome: str = ""
    requeued: list[str] = field(default_factory=list[str])
    """Why it went back to its place, each time."""

    @property
    def complete_ms(self) -> int | None:
        """Since when only others were waited for: all members had joined. None: never, as far as is known."""
        return self.queued_ms or self.granted_ms or self.ended_ms


@dataclass(slots=True)
class Done:
    """What one node has done in a switch. `busy`: percent, since the node's result before."""

    at_ms: int
    bytes: int
    seconds: float
    busy: float | None
    reason: str = ""
    steps_text: str = ""
    """As they were written: few of them are ever looked at."""

    @property
    def steps(self) -> tuple[StepFacts, ...]:
        """What was done, one after the other."""
        return steps_of(self.steps_text)


@dataclass(slots=True)
class Switch:
    """One slice changes hands. `left`: the job that had it before, as far as is known."""

    slice: str
    request: str
    run: str
    job: str
    fence: str
    began_ms: int
    left: str = ""
    ended_ms: int | None = None
    outcome: str = ""
    nodes: dict[str, Done] = field(default_factory=dict[str, Done])

    @property
    def bytes(self) -> int:
        """Moved by all nodes together."""
        return sum(done.bytes for done in self.nodes.values())


@dataclass(slots=True)
class Condition:
    """Something that keeps a slice from being granted: `blocked`, `draining`, `settling` or `kept`."""

    slice: str
    what: str
    began_ms: int
    node: str = ""
    reason: str = ""
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to the whole pool or to a node."""

    type: str
    at_ms: int
    text: str
