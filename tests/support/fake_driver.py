"""The driver's truth table as a small world in a file: it runs inside the real helper processes, is shared by
all of them, and outlives them, as the real driver's state does. Real processes stand behind the pids.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slicelock_agent.nvml import Gpu, Health

VARIABLE = "FAKE_DRIVER_WORLD"
GIB = 1 << 30
ON_DEVICE = ("running", "locked", "failed")


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def alive(pid: int) -> bool:
    return state_of(pid) not in "ZX"


class World:
    """GPUs, and processes with memory on them. Each look takes the file's lock; faults are told before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, gpus: dict[str, int]) -> World:
        facts: dict[str, Any] = {
            "gpus": gpus,
            "procs": {},
            "faults": [],
            "log": [],
            "health": {},
        }
        self.path.write_text(json.dumps(facts))
        return self

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """The world's facts, to be read and changed; processes that have ended are out of it."""
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            facts = json.loads(self.path.read_text())
            facts["procs"] = {pid: proc for pid, proc in facts["procs"].items() if alive(int(pid))}
            yield facts
            part = self.path.with_suffix(".part")  # a helper may be killed while it writes
            part.write_text(json.dumps(facts))
            part.rename(self.path)

    # ------------------------------------------------------------ what a test says

    def add(self, pid: int, mem: dict[str, int] | None = None, **facts: Any) -> None:
        """A process that uses CUDA. `untold`: NVML does not list it. `group`: its siblings hang beside it."""
        known = {
            "mem": mem or {},
            "state": "running",
            "poisoned": False,
            "saved": 0,
            "busy_s": 0.0,
            "untold": False,
        }
        with self.open() as world:
            world["procs"][str(pid)] = {**known, "group": "", **facts}

    def change(self, pid: int, **facts: Any) -> None:
        with self.open() as world:
            world["procs"][str(pid)].update(facts)

    def fault(self, pid: int, op: str, times: int = 1, **what: Any) -> None:
        """The next calls fail: `code` (and `words` of the program), `hang` (seconds), `die`, `state` (set
        before), `hog` (pid, memory).
        """
        with self.open() as world:
            world["faults"].append({"pid": pid, "op": op, "times": times, **what})

    def ill(self, uuid: str, **health: Any) -> None:
        with self.open() as world:
            world["health"][uuid] = health

    # ------------------------------------------------------------ what a test asks

    def log(self, *ops: str) -> list[tuple[str, int]]:
        """The calls so far, in order; only those named, if any are."""
        with self.open() as world:
            return [(op, pid) for op, pid in world["log"] if not ops or op in ops]

    def state(self, pid: int) -> str:
        with self.open() as world:
            return world["procs"][str(pid)]["state"] if str(pid) in world["procs"] else "gone"

    def states(self, pids: Sequence[int]) -> list[str]:
        return [self.state(pid) for pid in pids]


def used(world: dict[str, Any], gpu: str) -> int:
    return sum(proc["mem"].get(gpu, 0) for proc in world["procs"].values() if proc["state"] in ON_DEVICE)


class FakeGpus:
    """What NVML would tell of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def all(self) -> Sequence[Gpu]:
        with self._world.open() as world:
            return [
                Gpu(uuid, index, "FAKE", size) for index, (uuid, size) in enumerate(world["gpus"].items())
            ]

    def memory(self, uuid: str) -> tuple[int, int]:
        with self._world.open() as world:
            taken = used(world, uuid)
            return taken, world["gpus"][uuid] - taken

    def users(self, uuid: str) -> dict[int, int | None]:
        with self._world.open() as world:
            return {
                int(pid): proc["mem"][uuid]
                for pid, proc in world["procs"].items()
                if uuid in proc["mem"] and proc["state"] in ON_DEVICE and not proc["untold"]
            }

    def busy(self, uuid: str) -> int | None:
        return 50

    def health(self, uuid: str) -> Health:
        with self._world.open() as world:
            return Health(
                **{"driver": "580.159.04", "mig": False, "persistence": True, **world["health"].get(uuid, {})}
            )


class FakeDriver:
    """The driver's calls on the world that FAKE_DRIVER_WORLD names."""

    def __init__(self) -> None:
        self._world = World(Path(os.environ[VARIABLE]))

    def state(self, pid: int) -> tuple[int, str | None]:
        return self._call(pid, "state")

    def thread(self, pid: int) -> tuple[int, int | None]:
        code, _ = self._call(pid, "thread")
        return code, pid + 1 if code == 0 else None

    def lock(self, pid: int, timeout_ms: int) -> tuple[int, str | None]:
        return self._call(pid, "lock", timeout_ms)

    def save(self, pid: int) -> tuple[int, str | None]:
        return self._call(pid, "save")

    def restore(self, pid: int) -> tuple[int, str | None]:
        return self._call(pid, "restore")

    def unlock(self, pid: int) -> tuple[int, str | None]:
        return self._call(pid, "unlock")

    def _call(self, pid: int, op: str, timeout_ms: int = 0) -> tuple[int, str | None]:
        with self._world.open() as world:
            world["log"].append([op, pid])
            fault = self._fault(world, pid, op)
            hang = max(fault.get("hang", 0), 3600 if self._stuck(world, pid, op) else 0)
            if not hang:
                return self._answer(world, pid, op, timeout_ms, fault)
        time.sleep(hang)
        with self._world.open() as world:
            return self._answer(world, pid, op, timeout_ms, {})

    def _fault(self, world: dict[str, Any], pid: int, op: str) -> dict[str, Any]:
        for fault in world["faults"]:
            if (fault["pid"], fault["op"]) == (pid, op) and fault["times"] > 0:
                fault["times"] -= 1
                return fault
        return {}

    def _stuck(self, world: dict[str, Any], pid: int, op: str) -> bool:
        """A locked sibling blocks every call on the others but `unlock`; a stopped process answers `thread`
        alone.
        """
        if op != "thread" and state_of(pid) == "T":
            return True
        group = world["procs"].get(str(pid), {}).get("group")
        if not group or op == "unlock":
            return False
        others = (proc for other, proc in world["procs"].items() if other != str(pid))
        return any(proc["group"] == group and proc["state"] != "running" for proc in others)

    def _answer(
        self, world: dict[str, Any], pid: int, op: str, timeout_ms: int, fault: dict[str, Any]
    ) -> tuple[int, str | None]:
        proc = world["procs"].get(str(pid))
        if fault.get("die"):
            os.kill(pid, 9)
            while alive(pid):  # it is told as dead when it is
                time.sleep(0.001)
            return 1, None
        if "hog" in fault:
            hog, mem = fault["hog"]
            world["procs"][str(hog)]["mem"] = mem
        if proc is None:
            return 3, None  # alive, but without CUDA
        if "state" in fault:
            proc["state"] = fault["state"]
        if "code" in fault:
            return fault["code"], fault.get("words")
        if op == "state":
            return 0, proc["state"]
        if op == "thread":
            return 0, None
        return getattr(self, f"_{op}")(world, proc, timeout_ms), None

    def _lock(self, world: dict[str, Any], proc: dict[str, Any], timeout_ms: int) -> int:
        if proc["state"] != "running":
            return 401
        if proc["busy_s"] * 1000 > timeout_ms:
            return 600
        proc["state"] = "locked"
        return 0

    def _save(self, world: dict[str, Any], proc: dict[str, Any], timeout_ms: int) -> int:
        if proc["state"] != "locked":
            return 401
        proc["saved"], proc["state"] = sum(proc["mem"].values()), "checkpointed"
        return 0

    def _restore(self, world: dict[str, Any], proc: dict[str, Any], timeout_ms: int) -> int:
        if proc["state"] != "checkpointed":
            return 401
        if proc["poisoned"]:
            return 304
        if any(used(world, gpu) + size > world["gpus"][gpu] for gpu, size in proc["mem"].items()):
            proc["poisoned"] = True
            return 2
        proc["saved"], proc["state"] = 0, "locked"
        return 0

    def _unlock(self, world: dict[str, Any], proc: dict[str, Any], timeout_ms: int) -> int:
        if proc["state"] != "locked":
            return 401
        proc["state"] = "running"
        return 0
