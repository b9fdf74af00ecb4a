"""`SelfOffload`: for a framework that moves its own state."""

from __future__ import annotations

from slicelock.errors import ConfigurationError
from slicelock.host_memory import GIB


class SelfOffload:
    """The framework moves its own state off the device before each yield; the agent only verifies it.

    `residue_gib`: GiB of device memory that stay used all the same (contexts, graphs, communicators).
    """

    moves_itself = True

    def __init__(self, residue_gib: float = 0.0) -> None:
        if residue_gib < 0:
            raise ConfigurationError(f"A residue of {residue_gib:g} GiB is not possible.", advice="Use 0.")
        self.residue_bytes = round(residue_gib * GIB)

    def offload(self) -> None:
        """Nothing to do: the framework has done it before the yield."""

    def reload(self) -> None:
        """Nothing to do: the framework does it after the turn has begun."""
