"""Hooks: how a process moves its own device state out of the way and back, when an agent asks for it.

A hook is any object with `offload()` and `reload()`, plain or coroutine methods. Both may return the bytes
that they moved. They are called only while the run has no turn on the slice, one at a time. An offload that
fails raises; the agent then has other ways. A reload restores what the offload found.
"""

from __future__ import annotations

from slicelock.companion import Hook
from slicelock.errors import ConfigurationError
from slicelock.hooks.memory_saver import MemorySaver
from slicelock.hooks.moved import Moved
from slicelock.hooks.server import Server
from slicelock.hooks.torch_offload import TorchOffload
from slicelock.hooks.vllm import VllmEngine


class SelfOffload:
    """The framework moves its own state off the device before each yield; the agent only verifies it.

    `residue_gib`: GiB of device memory that stay used all the same (contexts, graphs, communicators).
    """

    moves_itself = True

    def __init__(self, residue_gib: float = 0.0) -> None:
        if residue_gib < 0:
            raise ConfigurationError(f"A residue of {residue_gib:g} GiB is not possible.", advice="Use 0.")
        self.residue_bytes = round(residue_gib * 1024**3)

    def offload(self) -> None:
        """Nothing to do: the framework has done it before the yield."""

    def reload(self) -> None:
        """Nothing to do: the framework does it after the turn has begun."""


__all__ = ["Hook", "MemorySaver", "Moved", "SelfOffload", "Server", "TorchOffload", "VllmEngine"]
