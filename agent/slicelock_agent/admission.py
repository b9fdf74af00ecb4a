"""Whether the host has room for what is to be saved. Room that was promised and is not used yet counts as
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from slicelock.errors import SnapshotFailed

GIB = 1 << 30
RESERVE, RESERVE_SHARE = 8 * GIB, 0.10
"""What always stays free: the larger of 8 GiB and a tenth, but never more than a quarter of a small
machine.
"""
SMALL_MACHINE_SHARE = 0.25


def memory() -> tuple[int, int]:
    """The machine's memory, and what of it is available without swapping, in bytes."""
    words = {line.split()[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    return words["MemTotal:"] * 1024, words["MemAvailable:"] * 1024


def reserve_of(total: int) -> int:
    """The bytes that always stay free on a machine with `total` bytes."""
    return int(min(max(RESERVE, total * RESERVE_SHARE), total * SMALL_MACHINE_SHARE))


def headroom(cgroup: Path) -> int | None:
    """Bytes that the group's limit (cgroup v2) leaves; None without a limit. File cache counts as free."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        current = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - current + int(stat.get("inactive_file", 0))


def groups_of(pid: int | str, root: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """The process's cgroup and every one above it, as far as they are seen here."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    inside = next((line[3:] for line in lines if line.startswith("0::")), "/")
    path = root / inside.strip("/")
    return [one for one in (path, *path.parents) if one.is_relative_to(root)]


class HostBudget:
    """Gives out host memory. `measure` returns the machine's total and available bytes (for tests)."""

    def __init__(self, measure: Callable[[], tuple[int, int]] = memory) -> None:
        self._measure = measure
        self._promised = 0

    @contextmanager
    def room(self, size: int, *, pid: int | str = "self") -> Generator[None]:
        """Keep `size` bytes for the block; SnapshotFailed, with the numbers, when they are not there.

        `pid` is the process in whose cgroups the bytes will count.
        """
        if reason := self.refusal(size, pid):
            raise SnapshotFailed(reason)
        self._promised += size
        try:
            yield
        finally:
            self._promised -= size

    def refusal(self, size: int, pid: int | str = "self") -> str:
        """Why so many bytes cannot be had; empty when they can."""
        total, available = self._measure()
        left = available - self._promised - reserve_of(total)
        if size > left:
            return (
                f"host memory does not suffice: {_gib(size)} are needed, {_gib(max(0, left))} can be given "
                f"({_gib(available)} available, {_gib(reserve_of(total))} kept in reserve)"
            )
        for group in groups_of(pid):
            room = headroom(group)
            if room is not None and size > room - self._promised:
                return f"the memory limit of {group} leaves {_gib(max(0, room))}, {_gib(size)} are needed"
        return ""


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
