"""Control groups of either version in prepared folders, and processes in them, as /proc shows them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from slicelock import host_memory

NO_LIMIT = {1: 9223372036854771712, 2: "max"}
FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
LINES = {
    1: "5:devices:/other\n4:cpuacct,memory:{path}\n2:freezer:{path}\n1:name=systemd:/other\n0::/\n",
    2: "1:name=systemd:/other\n0::{path}\n",
}
MOUNTS = {
    1: (
        "33 31 0:31 / {folder}/devices rw - cgroup cgroup rw,devices\n"
        "35 31 0:32 {top} {folder}/memory rw,relatime - cgroup cgroup rw,cpuacct,memory\n"
        "36 31 0:33 {top} {folder}/freezer rw,relatime - cgroup cgroup rw,freezer\n"
        "41 31 0:38 / {folder}/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    ),
    2: "32 31 0:29 {top} {folder}/memory rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n",
}


class ControlGroups:
    """A tree of groups. `top`: the group that is the mount's top, as in a container."""

    def __init__(self, folder: Path, version: int = 2, top: str = "/") -> None:
        self._version, self.root, self.proc = version, folder / "groups" / "memory", folder / "proc"
        (self.proc / "self").mkdir(parents=True)
        mounts = MOUNTS[version].format(top=top, folder=folder / "groups")
        (self.proc / "self" / "mountinfo").write_text(f"23 1 8:1 / / rw - ext4 /dev/root rw\n{mounts}")

    def limit(self, path: str, limit: int | None, used: int = 0, cache: int = 0) -> Path:
        """Make a group, with its limit in bytes and what it uses, some of it file cache."""
        group = self.root / path.strip("/")
        group.mkdir(parents=True, exist_ok=True)
        most, usage, cached = FILES[self._version]
        (group / most).write_text(f"{NO_LIMIT[self._version] if limit is None else limit}\n")
        (group / usage).write_text(f"{used}\n")
        (group / "memory.stat").write_text(f"anon 5\n{cached} {cache}\n")
        return group

    def has(self, path: str, *pids: int | str) -> None:
        """Put processes into the group."""
        for pid in pids:
            (self.proc / str(pid)).mkdir(exist_ok=True)
            (self.proc / str(pid) / "cgroup").write_text(LINES[self._version].format(path=path))

    def groups_of(self, pid: int | str = "self") -> list[Path]:
        """What is found of this tree; the other version's may be mounted beside it."""
        return [one for one in host_memory.groups_of(pid, self.proc) if one.is_relative_to(self.root)]

    def are_this_machines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have whoever asks for control groups find these."""
        found = partial(host_memory.groups_of, proc=self.proc)
        for module in (
            "slicelock.host_memory",
            "slicelock_agent.backends.cuda.host",
            "slicelock_agent.backends.cuda.discovery",
            "slicelock_agent.backends.sim",
        ):
            monkeypatch.setattr(f"{module}.groups_of", found)
