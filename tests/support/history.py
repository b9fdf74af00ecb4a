"""Histories written by hand: events as short calls, times in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slicelock.events import Event
from slicelock.history import History

START_S = 1_000_000.0


class Story:
    """Tells events in order: `at(3.5).held("a", 2, waited=1.5)` is job a's second turn, held at 3.5 s."""

    def __init__(self, slices: str = "s") -> None:
        self.events: list[Event] = []
        self.slices, self.now = slices, 0.0

    def at(self, seconds: float) -> Story:
        self.now = seconds
        return self

    def tell(self, kind: str, /, **facts: Any) -> Story:
        t = round((START_S + self.now) * 1000)
        told = {name: str(value) for name, value in facts.items() if value not in (None, "")}
        self.events.append(Event.of(f"{t}-{len(self.events)}", {"type": kind, "t": str(t), **told}))
        return self

    def of(self, kind: str, job: str, k: int, /, **facts: Any) -> Story:
        """An event of a request; the run is named after the job."""
        given = {"run": f"{job}-1", "job": job, "lane": "main", "k": k, "slices": self.slices}
        return self.tell(kind, **(given | facts))

    def queued(self, job: str, k: int, gathering: float = 0.0, **facts: Any) -> Story:
        return self.of("queued", job, k, waited_ms=ms(gathering), **facts)

    def switching(self, job: str, k: int, slice_: str = "s", **facts: Any) -> Story:
        return self.of("switching", job, k, slice=slice_, **facts)

    def ready(self, job: str, k: int, slice_: str = "s", **facts: Any) -> Story:
        return self.of("ready", job, k, **({"slice": slice_, "node": "n1", "seconds": 0, "bytes": 0} | facts))

    def held(self, job: str, k: int, waited: float = 0.0, **facts: Any) -> Story:
        return self.of("held", job, k, waited_ms=ms(waited), **facts)

    def ended(
        self, job: str, k: int, held: float | None = 0.0, outcome: str = "yielded", **facts: Any
    ) -> Story:
        length = {"held_ms": ms(held)} if held is not None else {}
        return self.of("ended", job, k, outcome=outcome, **length, **facts)

    def turn(self, job: str, k: int, held: float, waited: float = 0.0, **facts: Any) -> Story:
        """A whole turn from now on, with nothing to move; the clock stands at its end."""
        self.held(job, k, waited, **facts)
        return self.at(self.now + held).ended(job, k, held, **facts)

    def history(self, skip: int = 0) -> History:
        return History(self.events[skip:])


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def s(at_ms: int | None) -> float | None:
    """A time of a history in the story's seconds."""
    return None if at_ms is None else round(at_ms / 1000 - START_S, 3)


def spans(those: Iterable[Any]) -> list[tuple[float | None, float | None]]:
    """When things began and ended."""
    return [(s(one.began_ms), s(one.ended_ms)) for one in those]
