"""A record of a device that keeps none, from what its jobs tell of themselves and Redis of the slice."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence

from slicelock.demo.jobs import JobFacts
from slicelock.events import Event
from slicelock.settings import StoreSettings
from slicelock.sim.record import Admission, Move, Record, Use
from slicelock.store import EventReader

CLOCK_NS = 2_000_000
"""Redis tells the time in milliseconds."""


class ToldRecord:
    """Grows with `jobs`, to which whoever starts a job adds it.

    A use is a phase on the device, as long as its job says; its fence is that of the job's last turn before.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self.jobs: list[JobFacts] = []
        self._events = EventReader(settings, since_ms=0, name="demo")
        self._offset_ns = time.monotonic_ns() - time.time_ns()
        self._admissions: list[Admission] = []
        self._moves: list[Move] = []

    def close(self) -> None:
        """Read no more."""
        self._events.close()

    def read(self) -> Record:
        """Everything up to now."""
        for event in self._events.read_all():
            if event.type == "ready":
                self._take(event)
        uses = sorted((use for job in self.jobs for use in self._uses(job)), key=lambda use: use.start_ns)
        return Record(tuple(uses), (), tuple(self._admissions), tuple(self._moves))

    def _take(self, event: Event) -> None:
        run, fence = event.text("run"), int(event.number("fence"))
        at_ns, seconds = event.t_ms * 1_000_000 + self._offset_ns, event.number("seconds")
        self._admissions.append(Admission(run, fence, at_ns))
        if moved := int(event.number("bytes")):
            self._moves.append(Move("switch", run, moved, at_ns - round(seconds * 1e9), at_ns))

    def _uses(self, job: JobFacts) -> Sequence[Use]:
        mine = [one for one in self._admissions if one.run == job.run]
        starts = [one.at_ns for one in mine]

        def fence(start_ns: int) -> int:
            place = bisect_right(starts, start_ns + CLOCK_NS)
            return mine[place - 1].fence if place else 0

        return [Use(job.run, fence(start), 0, start, end) for start, end in job.uses]
