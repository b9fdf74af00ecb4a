"""The processes of runs on this node: found by what they say of themselves, held by pidfd, never taken on
trust.

A process registers with its boot id, pid namespace, pid there and start time. Whatever it claims, it is
looked up in /proc: one that cannot be seen from here is neither alive nor dead, and one of a user that the
agent may not touch is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from slicelock.errors import AgentError
from slicelock.guard import process_table
from slicelock.identity import ProcessIdentity

FIRST_NAMESPACE = 0xEFFFFFFC
"""The inode of the machine's first pid namespace (PROC_PID_INIT_INO of the kernel): from it every process
can be seen.
"""
TAGS = ("SLICELOCK_RUN", "SLICELOCK_JOB")


class Presence(StrEnum):
    """What is known of a registered process."""

    HERE = "here"
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """On another node."""
    UNSEEN = "unseen"
    """In a pid namespace that cannot be seen from here, or beyond what the agent can watch."""
    DENIED = "denied"
    """Of a user that the agent may not touch."""
    OTHERS = "others"
    """Started for another run than the one that names it, and so none of its processes."""


@dataclass(frozen=True, slots=True)
class Found:
    """A looked-up process. The pidfd is the caller's to close; -1 unless the process is HERE."""

    presence: Presence
    pid: int = 0
    pidfd: int = -1


class Finder:
    """Looks processes up.

    `uids`: the users whose processes may be touched; None allows all. `boots`: this node's boot ids.
    """

    def __init__(self, boots: Iterable[str], uids: Collection[int] | None) -> None:
        self.boots, self.uids = list(boots), uids
        self._namespace = namespace_of("self")

    def find(self, identities: Iterable[ProcessIdentity]) -> dict[ProcessIdentity, Found]:
        """Look up several at once: other namespaces need one walk through /proc, whatever their number."""
        identities = list(identities)
        foreign = {one for one in identities if self._is_foreign(one)}
        seen = _walk({one.namespace for one in foreign}) if foreign else {}
        return {one: self._look(one, seen) for one in identities}

    def _is_foreign(self, one: ProcessIdentity) -> bool:
        return one.boot == self.boots[-1] and one.namespace != self._namespace

    def _look(self, one: ProcessIdentity, seen: Mapping[int, Mapping[int, int]]) -> Found:
        if one.boot != self.boots[-1]:
            return Found(Presence.GONE if one.boot in self.boots else Presence.ELSEWHERE)
        if one.namespace == self._namespace:
            return self._hold(one, one.pid)
        inside = seen.get(one.namespace, {})
        if one.pid in inside:
            return self._hold(one, inside[one.pid])
        # A namespace without any process that is seen has ended, or is hidden from here.
        everything = self._namespace == FIRST_NAMESPACE and os.geteuid() == 0
        return Found(Presence.GONE if inside or everything else Presence.UNSEEN)

    def _hold(self, one: ProcessIdentity, pid: int) -> Found:
        if not 0 < pid < 1 << 31:
            return Found(Presence.GONE)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as failure:  # EINVAL: the pid is a thread's
            return Found(Presence.GONE if failure.errno in (errno.ESRCH, errno.EINVAL) else Presence.UNSEEN)
        found = self._check(one, pid)
        if found is not Presence.HERE:
            os.close(pidfd)
            return Found(found)
        return Found(found, pid, pidfd)

    def _check(self, one: ProcessIdentity, pid: int) -> Presence:
        """Called while a pidfd holds the process, so that what is read is about it."""
        try:
            if self.uids is not None and not set(uids_of(pid)) <= set(self.uids):
                return Presence.DENIED
            own = ProcessIdentity.of(pid)
        except ProcessLookupError:
            return Presence.GONE if _ended(pid) else Presence.DENIED
        except (OSError, ValueError, IndexError):
            return Presence.UNSEEN
        same = (own.namespace, own.start) == (one.namespace, one.start)
        return Presence.HERE if same else Presence.GONE


def _ended(pid: int) -> bool:
    """Whether a process that /proc does not show has ended, and is not hidden (mount option hidepid)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return state_of(pid) in "ZX"


def namespace_of(pid: int | str) -> int:
    """The inode of a process's pid namespace."""
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


def uids_of(pid: int) -> tuple[int, ...]:
    """A process's real, effective, saved and file system user; ProcessLookupError when it is gone."""
    return tuple(int(word) for word in _status(pid).get("Uid", "").split())


def state_of(pid: int) -> str:
    """A process's state letter (R, S, D, T, Z …); "X" when it is gone."""
    try:
        return _status(pid).get("State", "X")[:1]
    except OSError:
        return "X"


def _status(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are enough


def _walk(namespaces: Collection[int]) -> dict[int, dict[int, int]]:
    """For each namespace: pid inside → pid here, of all processes that can be seen."""
    seen: dict[int, dict[int, int]] = {}
    for pid in _pids():
        try:
            if (namespace := namespace_of(pid)) in namespaces:
                inside = int(_status(pid).get("NSpid", str(pid)).split()[-1])
                seen.setdefault(namespace, {})[inside] = pid
        except (OSError, ValueError, IndexError):
            continue  # it has just ended, or is another user's
    return seen


# ---------------------------------------------------------------- what may be killed


def environment_of(pid: int) -> dict[str, str]:
    """What a process was started with; OSError: hidden, or gone.

    Whoever starts a process decides on it, and nobody can change it afterwards.
    """
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return {name: value for name, equals, value in (one.partition("=") for one in raw.split("\0")) if equals}


def started_for(pid: int) -> tuple[str, str]:
    """The run and the job that a process was started for; OSError: hidden, or gone."""
    words = environment_of(pid)
    run, job = (words.get(name, "") for name in TAGS)
    return run, job


def of_another(pid: int, run: str) -> bool:
    """Whether a process was certainly started for another run than this one."""
    try:
        return started_for(pid)[0] not in ("", run)
    except OSError:
        return False


def tagged(pid: int, run: str, job: str) -> bool:
    """Whether the environment that a process was started with says that it belongs to this run.

    The run's name decides where it is there; a process that minted the name itself has only the job's.
    Without either, or where the environment cannot be read, the process may be watched but not touched.
    """
    try:
        its_run, its_job = started_for(pid)
    except OSError:
        return False
    return its_run == run if its_run else bool(its_job) and its_job == job


def family(roots: Collection[int]) -> list[int]:
    """These processes and all that descend from them, without this agent and its ancestors; parents first."""
    parents = {pid: parent for pid, (_, parent) in process_table().items()}
    below: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        below.setdefault(parent, []).append(pid)
    spared = _ancestors(os.getpid(), parents)
    found: list[int] = []
    todo = [pid for pid in roots if pid in parents]
    while todo:
        pid = todo.pop(0)
        if pid not in found and pid != os.getpid():
            found.append(pid)
            todo += below.get(pid, [])
    return [pid for pid in found if pid not in spared]


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    found = {1, pid}
    while (pid := parents.get(pid, 0)) > 1 and pid not in found:
        found.add(pid)
    return found


async def end(roots: Collection[int], uids: Collection[int] | None, patience: float) -> None:
    """End processes and everything that descends from them, and return when they have ended.

    AgentError when one belongs to a user that may not be touched, or has not ended after `patience` seconds.
    """
    held: dict[int, int] = {}
    try:
        _stop_all(roots, uids, held)
        _send(held.values(), signal.SIGKILL)
        async with asyncio.timeout(patience):
            await asyncio.gather(*map(_ending, held.values()))
    except TimeoutError:
        left = [pid for pid in held if state_of(pid) not in "ZX"]
        raise AgentError(f"processes {left} have not ended {patience:g} s after they were killed") from None
    except PermissionError as failure:
        raise AgentError(f"processes {sorted(held)} may not be killed: {failure.strerror}") from None
    finally:
        for pidfd in held.values():
            os.close(pidfd)


def _stop_all(roots: Collection[int], uids: Collection[int] | None, held: dict[int, int]) -> None:
    """Hold all still first, until two looks agree: killed one by one, they may start others meanwhile."""
    while new := [pid for pid in family(roots) if pid not in held]:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                held[pid] = os.pidfd_open(pid)
                if uids is not None and not set(uids_of(pid)) <= set(uids):
                    _send(held.values(), signal.SIGCONT)
                    raise AgentError(f"process {pid} belongs to a user that this agent may not touch")
        _send([held[pid] for pid in new if pid in held], signal.SIGSTOP)


def _send(pidfds: Iterable[int], number: signal.Signals) -> None:
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


async def _ending(pidfd: int) -> None:
    """Return when the process that the pidfd holds has ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
