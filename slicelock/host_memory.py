"""How much memory this machine can still give, and which control groups limit it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GIB = 1 << 30
RESERVE, RESERVE_SHARE = 8 * GIB, 0.10
"""What always stays free: the larger of 8 GiB and a tenth, but never more than a quarter of a small
machine.
"""
SMALL_MACHINE_SHARE = 0.25


def readable(nbytes: int) -> str:
    """Bytes for people: `3.10 GiB`, `12 MiB`."""
    return f"{nbytes / GIB:.2f} GiB" if nbytes >= GIB // 10 else f"{nbytes / (1 << 20):.3g} MiB"


def available(meminfo: Path = Path("/proc/meminfo")) -> tuple[int, int]:
    """The machine's memory, and what of it is available without swapping, in bytes."""
    words = {line.split()[0]: int(line.split()[1]) for line in meminfo.read_text().splitlines()}
    return words["MemTotal:"] * 1024, words["MemAvailable:"] * 1024


def reserve_of(total: int) -> int:
    """The bytes that always stay free on a machine with `total` bytes."""
    return int(min(max(RESERVE, total * RESERVE_SHARE), total * SMALL_MACHINE_SHARE))


def groups_of(pid: int | str = "self", root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """The process's control group (v2) and every one above it, as far as they are seen here."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    inside = next((line[3:] for line in lines if line.startswith("0::")), "/")
    path = root / inside.strip("/")
    return [one for one in (path, *path.parents) if one.is_relative_to(root)]


def left_in(group: Path) -> int | None:
    """Bytes that the group's limit leaves; None without a limit. File cache counts as free."""
    try:
        limit = (group / "memory.max").read_text().strip()
        current = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - current + int(stat.get("inactive_file", 0))


def refusal_by_groups(needed: Mapping[Path, int], promised: int = 0) -> str:
    """Why a control group's limit does not allow so many bytes more in it; empty when all do.

    `promised`: bytes that were given away already and are not used yet.
    """
    for group, size in needed.items():
        limited = left_in(group)
        if limited is not None and size > (left := limited - promised):
            return f"the memory limit of {group} leaves {readable(max(0, left))}, {readable(size)} are needed"
    return ""


def refusal_here(nbytes: int, promised: int = 0) -> str:
    """Why the control groups of this process do not allow so many bytes more; empty when they do."""
    return refusal_by_groups(dict.fromkeys(groups_of("self"), nbytes), promised)


def refusal(nbytes: int, promised: int = 0, machine: tuple[int, int] | None = None) -> str:
    """Why this process cannot have so many bytes more, with the numbers; empty when it can.

    `machine`: what `available` has told of it. `promised`: as for control groups.
    """
    total, free = machine or available()
    reserve = reserve_of(total)
    left = free - promised - reserve
    if nbytes > left:
        return (
            f"host memory does not suffice: {readable(nbytes)} are needed, {readable(max(0, left))} can "
            f"be given ({readable(free)} available, {readable(reserve)} kept in reserve)"
        )
    return refusal_here(nbytes, promised)
