"""Who a process is, so that nobody mistakes another for it: boot id, pid namespace, pid there, start time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """This machine's boot id, the same inside containers: 32 hex digits."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process as it sees itself; an agent resolves it to a pid of its own namespace.

    `start` is field 22 of `/proc/<pid>/stat`, in clock ticks since boot: it tells a process from a later
    one with the same pid.
    """

    boot: str
    namespace: int
    pid: int
    start: int

    def __str__(self) -> str:
        return f"{self.boot}:{self.namespace}:{self.pid}:{self.start}"

    @classmethod
    def parse(cls, text: str) -> ProcessIdentity:
        """Read what `str()` wrote; ValueError for anything else."""
        boot, namespace, pid, start = text.split(":")
        return cls(boot, int(namespace), int(pid), int(start))

    @classmethod
    def of(cls, pid: int | str = "self") -> ProcessIdentity:
        """The identity of a process of this pid namespace; ProcessLookupError if there is none (zombies
        included)."""
        folder = Path(f"/proc/{pid}")
        try:
            stat = (folder / "stat").read_text()
            namespace = (folder / "ns/pid").stat().st_ino
        except FileNotFoundError:
            raise ProcessLookupError(f"there is no process {pid}") from None
        head, _, tail = stat.rpartition(")")
        rest = tail.split()
        if rest[0] in "ZX":
            raise ProcessLookupError(f"process {pid} has ended")
        return cls(boot_id(), namespace, int(head.split("(", 1)[0]), int(rest[19]))
