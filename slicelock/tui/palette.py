"""Colours of jobs: the same for a job as long as the view runs, and mostly beyond; neighbours differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase, digits
from zlib import crc32

# Of middling brightness, for light and for dark ground. None is red or yellow, since those warn. The first
# eight are as far apart as can be; the others come when those are taken.
RICH = (
    *("#4f8ff7", "#e8853d", "#2fa873", "#a974ea", "#e0609c", "#1fb0c0", "#8fae35", "#b9765a"),
    *("#7fa6d9", "#c79a6b", "#7cc2a0", "#c7a3e8"),
)
FIRST = 8
PLAIN = ("blue", "magenta", "cyan", "green", "bright_blue", "bright_magenta", "bright_cyan", "bright_green")
LETTERS = ascii_uppercase + ascii_lowercase + digits


REMEMBERED = 200  # jobs; beyond that those that are gone are forgotten, so that a view may run for ever


@dataclass(frozen=True, slots=True)
class _Signs:
    """A job's place among the colours, and its number among the letters."""

    colour: int
    letter: int


class Palette:
    """Gives each job a colour and, for terminals without, a letter; no two have the same while there are
    enough."""

    def __init__(self) -> None:
        self._signs: dict[str, _Signs] = {}

    def __len__(self) -> int:
        """How many jobs it knows."""
        return len(self._signs)

    def meet(self, jobs: Iterable[str]) -> None:
        """Make jobs known. Their order does not matter when they come at once. Those that are there keep
        their signs; others do while there are not too many."""
        there = set(jobs)
        if len(self._signs.keys() | there) > REMEMBERED:
            self._signs = {job: its for job, its in self._signs.items() if job in there}
        for job in sorted(there - self._signs.keys()):
            self._signs[job] = _Signs(self._free_colour(crc32(job.encode()) % FIRST), self._free_letter())

    def _free_colour(self, wanted: int) -> int:
        """The wanted place, or else the next one that fewest have."""
        taken = Counter(one.colour for one in self._signs.values())
        order = [*((wanted + step) % FIRST for step in range(FIRST)), *range(FIRST, len(RICH))]
        return min(order, key=lambda place: taken[place])

    def _free_letter(self) -> int:
        """The first one that fewest have."""
        taken = Counter(one.letter for one in self._signs.values())
        return min(range(len(LETTERS)), key=lambda number: taken[number])

    def colour(self, job: str, *, plain: bool = False) -> str:
        """A colour that rich knows; `plain` for terminals with 16."""
        place = self._signs[job].colour if job in self._signs else 0
        return PLAIN[place % len(PLAIN)] if plain else RICH[place]

    def letter(self, job: str) -> str:
        """One character for a job; `?` for one that was never met."""
        return LETTERS[self._signs[job].letter] if job in self._signs else "?"
