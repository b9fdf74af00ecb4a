"""Grants that a lease alone guards are told only when replicas have them too.

Where agents confirm a grant, a failover that loses it does no harm: they refuse the old fence. On agentless
slices a lost grant would be given to somebody else while its holder goes on. `WAIT` narrows that window to a
failover in which the replica that has the grant is not the one promoted; it does not close it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slicelock.errors import NotReplicated, SlicelockError, StoreError
from slicelock.keys import Keys
from slicelock.settings import StoreSettings
from slicelock.store.server import Server

WAIT_S = 1.0


class Replicas:
    """How many replicas must confirm, and how they are asked: on the connection of the grant itself."""

    def __init__(self, settings: StoreSettings, *, sentinels: bool) -> None:
        self._wanted, self._sentinels = settings.wait_replicas, sentinels
        self._channel = Keys(settings.pool).wait_channel
        self._wait_ms = int(min(WAIT_S, settings.store_timeout / 2) * 1000)

    def needed(self, server: Server) -> int:
        """By the setting; else one, where there are replicas or should be some."""
        if self._wanted is not None:
            return self._wanted
        return int(self._sentinels or server.replicas > 0)

    def questions(self, needed: int) -> tuple[tuple[str, ...], ...]:
        """Two calls. The message makes the connection's offset the newest there is: `WAIT` counts from the
        connection's own last write, and the grant may have been written by another one."""
        return ("PUBLISH", self._channel, ""), ("WAIT", str(needed), str(self._wait_ms))

    def objection(self, answers: Sequence[Any], needed: int, place: str) -> SlicelockError | None:
        """Why the grant does not count, by the answers, or by the errors in their place; None: it does."""
        for failure in answers:
            if isinstance(failure, SlicelockError):
                # A server that has just become a replica answers with an error: nothing was confirmed.
                return NotReplicated(str(failure)) if type(failure) is StoreError else failure
        confirmed = int(answers[-1])
        if confirmed >= needed:
            return None
        return NotReplicated(
            f"{confirmed} of {needed} replicas of Redis at {place} confirmed the grant within "
            f"{self._wait_ms / 1000:g} s, so it is taken back.",
            advice="Bring a replica back, or set SLICELOCK_WAIT_REPLICAS=0.",
        )
