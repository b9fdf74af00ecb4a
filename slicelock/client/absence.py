"""Times away from a turn, which concurrent blocks share.

The first to enter gives the turn up, the last to end takes the next one, and then all go on.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager

from slicelock.errors import TurnError


class Absence:
    """One time away. `gone`: the turn has been given up; `back`: the next one has begun; or why not.

    `before`: the end of the time before this one, if that is not over yet.
    """

    def __init__(self, before: Future[None] | None) -> None:
        self.before = before
        self.gone, self.back = Future[None](), Future[None]()
        self.inside = 0


class Absences:
    """Who is away from one turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the counts; nobody waits under it
        self._latest: Absence | None = None

    @property
    def open(self) -> bool:
        """Whether the turn is given up, or about to be given up or taken back."""
        return self._latest is not None and not self._latest.back.done()

    def enter(self) -> tuple[Absence, bool]:
        """Be away too; whether this is the first, who has to give the turn up."""
        with self._lock:
            latest = self._latest
            if latest is None or not latest.inside:
                latest = self._latest = Absence(latest.back if latest and self.open else None)
            latest.inside += 1
            return latest, latest.inside == 1

    def end(self, absence: Absence) -> bool:
        """Be away no more; whether this was the last, who has to take the turn back."""
        with self._lock:
            absence.inside -= 1
            return not absence.inside


@contextmanager
def resolving(outcome: Future[None]) -> Generator[None]:
    """Tell all who wait for the outcome how the block ended."""
    try:
        yield
    except BaseException as failure:
        told = (
            failure
            if isinstance(failure, Exception)
            else TurnError("Whoever saw to the turn was interrupted.")
        )
        outcome.set_exception(told)
        raise
    outcome.set_result(None)
