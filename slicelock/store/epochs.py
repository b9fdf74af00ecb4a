"""What each call tells the server of its lives.

The scripts notice a new primary by its run id. But one that was primary before, and becomes it again before
anybody has made a replica of it, is the same process with stale data: only who has been served by the other
one meanwhile can know, and says so.
"""

from __future__ import annotations

from slicelock.store.server import Server


class Epochs:
    """The highest epoch of a pool that a reply has told; shared by all stores of one party."""

    __slots__ = ("_highest",)

    def __init__(self) -> None:
        self._highest = 0

    def heed(self, reply: object) -> None:
        """A reply has come; not every one tells an epoch."""
        self._highest = max(self._highest, getattr(reply, "epoch", 0))

    def told_to(self, server: Server) -> str:
        """A call's last argument: the server that its connection has led to, and the highest epoch."""
        return f"{server.run_id}/{self._highest}"
