"""Which control groups hold what the driver would save of processes.

The driver keeps a process's saved state in that process, so its control groups' limits count; without room
the kernel would end the job in the middle of its save.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from slicelock.host_memory import groups_of
from slicelock_agent.backends.cuda.discovery import Process
from slicelock_agent.host_budget import over_limit

HOST_SHARE = 1.05
"""Host memory that a saved byte takes, at most."""


def host_bytes(device_bytes: int) -> int:
    """Host memory that so many bytes of device memory may take."""
    return int(device_bytes * HOST_SHARE)


def totals_of(sizes: Mapping[Process, Mapping[str, int]]) -> dict[Process, int]:
    """The bytes of each process on all GPUs together."""
    return {one: sum(size.values()) for one, size in sizes.items()}


def charged(sizes: Mapping[Process, int]) -> Mapping[Path, int]:
    """The bytes that each control group will hold, when so many are saved of each process."""
    needed = Counter[Path]()
    for one, size in sizes.items():
        needed.update(dict.fromkeys(groups_of(one.pid), host_bytes(size)))
    return needed


def group_refusal(sizes: Mapping[Process, int]) -> str:
    """Why so many bytes of these processes may not be saved; empty when they may."""
    return over_limit(charged(sizes))
