"""Hooks: how a process moves its own device state out of the way and back, when an agent asks for it.

A hook is any object with `offload()` and `reload()`, plain or coroutine methods. Both may return the bytes
that they moved. They are called only while the run has no turn on the slice, one at a time. An offload that
fails raises; the agent then has other ways. A reload restores what the offload found.
"""

from __future__ import annotations

from slicelock.companion import Hook
from slicelock.hooks.memory_saver import MemorySaver
from slicelock.hooks.moved import Moved
from slicelock.hooks.self_offload import SelfOffload
from slicelock.hooks.server import Server
from slicelock.hooks.torch_offload import TorchOffload
from slicelock.hooks.vllm import VllmEngine

__all__ = ["Hook", "MemorySaver", "Moved", "SelfOffload", "Server", "TorchOffload", "VllmEngine"]
