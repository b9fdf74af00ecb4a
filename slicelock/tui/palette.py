"""Colours of jobs: the same for a job as long as the view runs, and mostly beyond; neighbours differ."""

from __future__ import annotations

from collections.abc import Iterable
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


class Palette:
    """Gives each job a colour and, for terminals without, a letter; no two have the same while there are
    enough."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def meet(self, jobs: Iterable[str]) -> None:
        """Make jobs known. Their order does not matter when they come at once."""
        for job in sorted(set(jobs) - self._places.keys()):
            self._places[job] = self._free(crc32(job.encode()) % FIRST)

    def _free(self, wanted: int) -> int:
        """The wanted place, or else the next one that fewest have."""
        taken = list(self._places.values())
        order = [*((wanted + step) % FIRST for step in range(FIRST)), *range(FIRST, len(RICH))]
        return min(order, key=taken.count)

    def colour(self, job: str, *, plain: bool = False) -> str:
        """A colour that rich knows; `plain` for terminals with 16."""
        place = self._places.get(job, 0)
        return PLAIN[place % len(PLAIN)] if plain else RICH[place]

    def letter(self, job: str) -> str:
        """One character for a job; jobs are numbered as they were met."""
        if job not in self._places:
            return "?"
        return LETTERS[list(self._places).index(job) % len(LETTERS)]
