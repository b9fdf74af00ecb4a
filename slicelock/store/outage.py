"""A time in which Redis does not do what it is asked: told once, and again when another remedy is needed."""

from __future__ import annotations

from slicelock.errors import SlicelockError


class Outage:
    """Which failures have been told since Redis last answered: one for each advice."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def is_news(self, failure: SlicelockError) -> bool:
        """Whether to tell a failure: the first one, and the first with another advice. (After a failover,
        a primary that cannot be reached may be followed by one that refuses every change.)"""
        known = failure.advice in self._told
        self._told.add(failure.advice)
        return not known

    def over(self) -> bool:
        """Redis has answered; whether it had not before."""
        was, self._told = bool(self._told), set()
        return was
