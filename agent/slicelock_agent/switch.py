"""One switch of a slice on this node: from the turn that is wanted to the one result that is told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from slicelock.logs import LogLine
from slicelock.states import RunState
from slicelock_agent.reconcile import Action, Step, Wanted
from slicelock_agent.result import Outcome, Result
from slicelock_agent.station import Station
from slicelock_agent.utilisation import Utilisation

log = logging.getLogger("slicelock_agent")

LOG_LATER_S = 0.01
"""Before a result gets its log line: whoever waits for the turn needs the cores first."""


class Switch:
    """A slice's switch to one turn. It begins when this turn is wanted, counts what is moved, and ends with
    the one result that it tells; or without any, when another turn is wanted, with which another begins.

    `wanted`: what a beat said last of the turn. While it asks for nothing no result is told, since the
    request has ended, or the slice settles and it will be asked for again.
    """

    def __init__(
        self, station: Station, wanted: Wanted, busy: Utilisation, tell: Callable[[Result], None]
    ) -> None:
        self.wanted, self._at, self._busy, self._tell = wanted, station, busy, tell
        self._begun, self._moved, self._bytes = time.monotonic(), False, 0
        self._result: Result | None = None
        station.steps.clear()

    @property
    def ended(self) -> bool:
        return self._result is not None

    def count(self, action: Action, outcome: Outcome) -> None:
        """A step has ended: note what it moved. Hooks may have moved state without counting bytes."""
        left = action.step is Step.EVICT and self._at.page.state(action.run) is RunState.SAVED
        uncounted = outcome.done and (left or action.step is Step.RELOAD)
        self._bytes += outcome.bytes
        self._moved |= outcome.bytes > 0 or uncounted

    def ready(self) -> None:
        """The run is let in."""
        if self.wanted.asks:
            self._end("READY", self.wanted.run)

    def later(self, run: str, reason: str) -> None:
        """The wanted run alone cannot be served now, and nobody is in its way: others may be."""
        self.fail("later", run, reason)

    def fail(self, what: str, run: str, reason: str) -> None:
        """`what` decides how Redis goes on: `evict` blocks the slice and keeps the request, as does `later`
        without blocking; `refused` ends the request, and `restore` calls its run lost as well.

        Only `evict` may be about another run: one that was wanted when a step began is no longer asked for.
        """
        if self.wanted.asks and (what == "evict" or run == self.wanted.run):
            self._end("FAILED", run, what, reason)
        else:
            log.warning(LogLine(reason, slice=self._at.name, run=run))  # there is no result to tell it with

    def _end(self, outcome: str, run: str, what: str = "", reason: str = "") -> None:
        facts = (self._at.name, self.wanted.fence, outcome, run, what, reason)
        seconds, steps = time.monotonic() - self._begun, tuple(self._at.steps.told())
        self._result = Result(*facts, self._moved, self._bytes, seconds, steps, self._busy.taken())
        self._tell(self._result)
        known = self._at.registry.runs.get(self.wanted.run)
        log_line = partial(self._result.log, self.wanted.run, known.job if known else "")
        asyncio.get_running_loop().call_later(LOG_LATER_S, log_line)

    def tell_again(self) -> None:
        """Tell the result once more, in case Redis has forgotten it, if it is asked for and still true."""
        if self._result and self.wanted.asks and self._is_true(self._result):
            self._tell(self._result)

    def _is_true(self, result: Result) -> bool:
        page = self._at.page
        here = page.admitted == self.wanted.turn and page.state(result.run) is RunState.LOADED
        return here or result.outcome != "READY"
