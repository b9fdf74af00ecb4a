"""Which processes of a run may use CUDA, and what /proc says of them.

A process belongs to a run if it registered for it, descends from one that did, or shares its control group
and carries the run's name in its environment; and only if the agent may touch its user.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slicelock.host_memory import groups_of
from slicelock.identity import ProcessIdentity
from slicelock_agent.processes import environment_of, family, state_of, tagged, uids_of

SAFE_NCCL = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
"""With these the driver can restore a process that has an NCCL group; without any one of them it cannot."""
FREEZERS = {"cgroup.freeze": "0", "freezer.state": "THAWED"}
"""What control groups of version 2, and of 1, say of themselves when they are not frozen."""
NO_NCCL = "SLICELOCK_NO_NCCL"
YES = ("1", "true", "t", "yes", "y", "on")  # what settings take for it


@dataclass(frozen=True, slots=True, order=True)
class Process:
    """A process that cannot be mistaken for another: its pid here, and its start time in ticks since boot."""

    pid: int
    start: int

    def __str__(self) -> str:
        return f"process {self.pid}"


def processes_of(roots: Collection[int], run: str, uids: Collection[int] | None) -> list[Process]:
    """Every living process of the run, by pid, as one look at /proc shows it."""
    pids = set(family(roots))
    for group in {group_of(pid) for pid in pids} - {None, group_of(os.getpid())}:
        pids |= {pid for pid in members(group) if pid not in pids and tagged(pid, run, "")}
    return sorted(one for one in map(identified, pids) if one is not None and allowed(one.pid, uids))


def outside(pid: int, run: str, processes: Iterable[Process]) -> bool:
    """Whether a process was started for the run, by the user of these processes of it, and is none of them: a
    child that has left them, as daemons do. Such a tag is not enough to touch it, and enough to wait for it.
    """
    try:
        return tagged(pid, run, "") and uids_of(pid)[0] in {uids_of(one.pid)[0] for one in processes}
    except (OSError, IndexError):
        return False


def identified(pid: int) -> Process | None:
    """The process that has this pid now; None for one that has ended."""
    try:
        return Process(pid, ProcessIdentity.of(pid).start)
    except (OSError, ValueError, IndexError):
        return None


def allowed(pid: int, uids: Collection[int] | None) -> bool:
    """Whether the agent may touch the process."""
    try:
        return uids is None or set(uids_of(pid)) <= set(uids)
    except OSError:
        return False


def group_of(pid: int) -> Path | None:
    """The process's control group; None when it is not to be seen here, or the one that has them all."""
    group, *above = groups_of(pid) or [None]
    return group if group and group.parent in above else None


def members(group: Path | None) -> Iterable[int]:
    """Every pid in a control group and in those below it."""
    for folder, _, _ in os.walk(group) if group else ():
        try:
            yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())
        except (OSError, ValueError):
            continue


def stopped(pid: int) -> str:
    """Why the process cannot answer the driver, which would wait for it for ever; empty when it can."""
    if state_of(pid) in "Tt":
        return "is stopped (a signal or a debugger); let it go on"
    for group in groups_of(pid, controller="freezer"):
        for file, thawed in FREEZERS.items():
            with suppress(OSError):
                if (group / file).read_text().strip() != thawed:
                    return f"is frozen with its control group {group}; thaw it"
    return ""


def environment(pid: int) -> dict[str, str]:
    """What the process was started with; empty when it cannot be read."""
    try:
        return environment_of(pid)
    except OSError:
        return {}


def unsafe_nccl(pid: int) -> list[str]:
    """The NCCL settings that the process lacks; empty when it has them, or says that it has no NCCL group."""
    words = environment(pid)
    if words.get(NO_NCCL, "").lower() in YES:
        return []
    return [f"{name}={value}" for name, value in SAFE_NCCL.items() if words.get(name) != value]


def described(pid: int) -> str:
    """A process in words, with its control group: for people who look for it."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"process {pid} (not to be seen from here)"
    group = _group_name(pid)
    return f"process {pid} ({name}{f', control group {group}' if group else ''})"


def _group_name(pid: int) -> str:
    """The process's control group as /proc names it, the narrowest of several; empty for the topmost."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    name = max((line.split(":", 2)[-1] for line in lines), key=len, default="")
    return "" if name == "/" else name
