"""Spans of turns for OpenTelemetry, in programs that have set it up; in others nothing of it is imported.

A turn's span goes from the request to the end of the turn. Below it: `wait`, `switch` where state was moved,
and a span with the phase's name. They are made when the turn is over, below the span that was current when
the turn was asked for.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from slicelock.protocol import Part

log = logging.getLogger("slicelock")

API, CONTEXT = "opentelemetry.trace", "opentelemetry.context"
NS = 1_000_000_000


class Trace:
    """The times of one turn, from its request on."""

    __slots__ = ("_api", "_asked_ns", "_context", "_held_ns")

    def __init__(self, api: Any) -> None:
        self._api, self._context = api, sys.modules[CONTEXT].get_current()
        self._asked_ns, self._held_ns = time.time_ns(), 0

    def begun(self) -> None:
        """The turn has begun."""
        self._held_ns = time.time_ns()

    def end(self, part: Part, job: str, failure: BaseException | None) -> None:
        """The turn is over, or will not begin: `failure` says why, if it was not yielded.

        Never raises: a span processor that fails keeps no turn from ending, and no holder from hearing of it.
        """
        try:
            self._end(part, job, failure)
        except Exception:
            log.exception("turn %s could not be traced", part.id)

    def _end(self, part: Part, job: str, failure: BaseException | None) -> None:
        tracer = self._api.get_tracer("slicelock")
        ended = time.time_ns()
        whole = tracer.start_span(
            "slicelock turn",
            context=self._context,
            start_time=self._asked_ns,
            attributes=_facts(part, job),
            record_exception=False,
        )
        below = self._api.set_span_in_context(whole, self._context)
        for name, start, end in self._parts(part, ended):
            tracer.start_span(name, context=below, start_time=start).end(end_time=end)
        if failure is not None:
            whole.set_status(self._api.StatusCode.ERROR, str(failure))
        whole.end(end_time=ended)

    def _parts(self, part: Part, ended: int) -> list[tuple[str, int, int]]:
        held = self._held_ns or ended
        granted = min(self._asked_ns + int(part.waited_s * NS), held)
        if not self._held_ns or not part.moved:
            granted = held
        parts = [("slicelock wait", self._asked_ns, granted)]
        if granted < held:
            parts.append(("slicelock switch", granted, held))
        if self._held_ns:
            parts.append((f"slicelock phase {part.wish.phase}".strip(), held, ended))
        return parts


def begin() -> Trace | None:
    """A turn is asked for now; None in a program that does not use OpenTelemetry."""
    api: Any = sys.modules.get(API)
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None  # not there, or brought in by somebody and not set up
    return Trace(api)


def _facts(part: Part, job: str) -> dict[str, Any]:
    facts = {
        "job": job,
        "run": part.run,
        "request": part.id,
        "slices": list(part.wish.slices),
        "lane": part.wish.lane,
        "phase": part.wish.phase,
        "fence": max(part.fences.values(), default=0),
        "moved": part.moved,
    }
    return {f"slicelock.{name}": value for name, value in facts.items() if value not in ("", [])}
