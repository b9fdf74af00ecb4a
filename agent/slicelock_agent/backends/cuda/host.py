"""Whether the control groups of processes have room for what the driver would save in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicelock.host_memory import groups_of, refusal_by_groups
from slicelock_agent.backends.cuda.discovery import GROUPS, Process


def group_refusal(sizes: Mapping[Process, int], root: Path = GROUPS) -> str:
    """Why these processes may not get so many bytes more; empty when they may.

    The driver keeps a process's saved state in that process, so its control groups' limits count, up to the
    root; without room the kernel would end the job in the middle of its save.
    """
    needed: dict[Path, int] = {}
    for one, size in sizes.items():
        for group in groups_of(one.pid, root):
            needed[group] = needed.get(group, 0) + size
    return refusal_by_groups(needed)
