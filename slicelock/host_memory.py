"""How much memory this machine can still give, and which control groups limit it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

GIB = 1 << 30
RESERVE, RESERVE_SHARE = 8 * GIB, 0.10
"""What always stays free: the larger of 8 GiB and a tenth, but never more than a quarter of a small
machine.
"""
SMALL_MACHINE_SHARE = 0.25
LAST = GIB
"""What stays free even where somebody has said that the reserve may be used."""
ACCOUNTS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where a control group of version 2, and of 1, tells its limit, what it uses, and what of that is cache."""
CONTROLLERS = ("memory", "freezer")
"""Of version 1, which has a tree of groups for each."""
UNLIMITED = 1 << 62
"""Version 1 has a number for no limit: the largest that there is, in whole pages."""


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


def groups_of(pid: int | str = "self", proc: Path = Path("/proc"), controller: str = "memory") -> list[Path]:
    """The control groups that count a process's memory, or have it by another of the CONTROLLERS: its own,
    and every one above that is seen here.

    Those of a process in another container are often not to be seen, and then none is given: what a mount
    shows as its top is this process's own group there.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []
    groups = [line.split(":", 2)[1:] for line in lines if line.count(":") >= 2]
    mine = [(path, which) for which, path in groups if controller in which.split(",") or not which]
    mounts = _mounts(proc)
    return [group for path, which in mine for group in _seen(path, mounts[which and controller])]


def _seen(path: str, mounts: Sequence[tuple[str, str]]) -> Iterator[Path]:
    """The folders of a group and of those above it."""
    for top, folder in mounts:
        group = Path(path)
        if group.is_relative_to(top) and ".." not in (below := group.relative_to(top)).parts:
            yield from (Path(folder) / one for one in (below, *below.parents))
            return


@cache
def _mounts(proc: Path) -> Mapping[str, list[tuple[str, str]]]:
    """Where control groups are mounted, by controller (version 2 names none): which group is the top there,
    and in which folder.
    """
    found: dict[str, list[tuple[str, str]]] = {one: [] for one in ("", *CONTROLLERS)}
    for line in (proc / "self/mountinfo").read_text().splitlines():
        mounted, _, kind = line.partition(" - ")
        top, folder = mounted.split()[3:5]
        match kind.split():
            case ["cgroup2", *_]:
                found[""].append((top, folder))
            case ["cgroup", *_, options]:
                for one in set(CONTROLLERS) & set(options.split(",")):
                    found[one].append((top, folder))
            case _:
                pass
    return found


def left_in(group: Path) -> int | None:
    """Bytes that the group's limit leaves; None without a limit. File cache counts as free."""
    for limit, usage, cached in ACCOUNTS:
        try:
            most, used = (group / limit).read_text().strip(), int((group / usage).read_text())
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if most != "max" and int(most) < UNLIMITED:
            return int(most) - used + int(stat.get(cached, 0))
    return None


def refusal_by_groups(needed: Mapping[Path, int], promised: Mapping[Path, int] | None = None) -> str:
    """Why a control group's limit does not allow so many bytes more in it; empty when all do.

    `promised`: bytes that were given away in groups already and are not used yet.
    """
    for group, size in needed.items():
        limited = left_in(group)
        if limited is not None and size > (left := limited - (promised or {}).get(group, 0)):
            return f"the memory limit of {group} leaves {readable(max(0, left))}, {readable(size)} are needed"
    return ""


def refusal_by_machine(
    nbytes: int, promised: int = 0, machine: tuple[int, int] | None = None, *, reserve: int | None = None
) -> str:
    """Why the machine cannot give so many bytes more, with the numbers; empty when it can.

    `machine`: what `available` has told of it. `promised`: as for control groups. `reserve`: what is kept of
    the reserve, at most; None: all of it.
    """
    total, free = machine or available()
    reserve = reserve_of(total) if reserve is None else min(reserve, reserve_of(total))
    left = free - promised - reserve
    if nbytes > left:
        return (
            f"host memory does not suffice: {readable(nbytes)} are needed, {readable(max(0, left))} can "
            f"be given ({readable(free)} available, {readable(reserve)} kept in reserve)"
        )
    return ""


def refusal(nbytes: int, reserve: int | None = None) -> str:
    """Why this process cannot have so many bytes more, with the numbers; empty when it can.

    `reserve`: as for `refusal_by_machine`.
    """
    by_machine = refusal_by_machine(nbytes, reserve=reserve)
    return by_machine or refusal_by_groups(dict.fromkeys(groups_of("self"), nbytes))
