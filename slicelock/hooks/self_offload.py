"""`SelfOffload`: for a framework that moves its own state."""

from __future__ import annotations

from slicelock.hooks.moved import residue


class SelfOffload:
    """The framework moves its own state off the device before each yield; the agent only verifies it.

    `residue_gib`: GiB of device memory that stay used all the same (contexts, graphs, communicators).
    """

    moves_itself = True

    def __init__(self, residue_gib: float = 0.0) -> None:
        self.residue_bytes = residue(residue_gib)

    def offload(self) -> None:
        """Nothing to do: the framework has done it before the yield."""

    def reload(self) -> None:
        """Nothing to do: the framework does it after the turn has begun."""
