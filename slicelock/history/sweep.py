"""Goes through a stretch of time and tells what goes on at once in each part of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter


@dataclass(frozen=True, slots=True)
class Window:
    """The time that figures are about, in ms."""

    begin_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return max(self.end_ms - self.begin_ms, 0)

    def clip(self, began_ms: int, ended_ms: int | None) -> tuple[int, int]:
        """The part of a span in the window, empty when there is none; what goes on lasts to its end."""
        begin = min(max(began_ms, self.begin_ms), self.end_ms)
        return begin, max(min(self.end_ms if ended_ms is None else ended_ms, self.end_ms), begin)

    def length(self, began_ms: int, ended_ms: int | None) -> int:
        """How much of a span is in the window."""
        begin, end = self.clip(began_ms, ended_ms)
        return end - begin

    def touches(self, began_ms: int, ended_ms: int | None) -> bool:
        """Whether any of a span is in the window, be it a moment."""
        return began_ms <= self.end_ms and (ended_ms is None or ended_ms >= self.begin_ms)


Span = tuple[int, int, str]
"""Begin, end, and what it is."""


def sweep(spans: Iterable[Span]) -> Iterator[tuple[int, dict[str, int]]]:
    """The length of each part of the time in which nothing begins or ends, and how many of what go on.

    The dictionary is the same each time: look at it, and keep nothing of it.
    """
    changes: list[tuple[int, str, int]] = []
    for begin, end, what in spans:
        if end > begin:
            changes += ((begin, what, 1), (end, what, -1))
    changes.sort(key=itemgetter(0))
    present: dict[str, int] = {}
    before = changes[0][0] if changes else 0
    for at, what, change in changes:
        if at > before:
            yield at - before, present
            before = at
        count = present.get(what, 0) + change
        if count:
            present[what] = count
        else:
            present.pop(what, None)
