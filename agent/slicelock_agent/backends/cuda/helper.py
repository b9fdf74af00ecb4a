"""The process that calls the driver: one call at a time, one JSON line in, one JSON line out.

A call of the driver cannot be cancelled and may never return, so it is made here, where whoever waits for it
can end it. Run as a script of its own (`python -P helper.py --parent PID …`): it imports nothing of the
agent, so it starts quickly. It makes no CUDA context: that would take device memory itself.

In: {"op": "state|thread|lock|save|restore|unlock|ping", "pid": …, "start": …, "timeout_ms": …}
Out: {"code": …, "value": …, "text": …, "seconds": …}. `start` is the process's start time, looked at right
before the call, so that a pid that has come to mean another process, or a thread, is never touched (code -1).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

PR_SET_PDEATHSIG = 1
GONE, BROKEN, UNCLEAR = -1, -3, -5
STATES = ("running", "locked", "checkpointed", "failed", "checkpointing", "restoring")

WORDS = (
    ("invalid argument", 1),
    ("out of memory", 2),
    ("initialization error", 3),
    ("os call failed", 304),
    ("present state", 401),
    ("symbol not found", 500),
    ("device not ready", 600),
    ("operation not permitted", 800),
    ("operation not supported", 801),
    ("system not yet initialized", 802),
)
"""How the `cuda-checkpoint` program words the driver's codes, looked through in this order: 304 speaks
of what is not supported, too. Anything else is its own trouble, and tells nothing of the process.
"""
OWN_TROUBLE = "error initializing cuda"
"""Before such words when it could not begin at all. Taken for an answer, 304 would say that a run is lost."""


class Driver(Protocol):
    """The driver's calls on another process; each gives its code, and what it tells, or words."""

    def state(self, pid: int) -> tuple[int, str | None]: ...
    def thread(self, pid: int) -> tuple[int, int | None]: ...
    def lock(self, pid: int, timeout_ms: int) -> tuple[int, str | None]: ...
    def save(self, pid: int) -> tuple[int, str | None]: ...
    def restore(self, pid: int) -> tuple[int, str | None]: ...
    def unlock(self, pid: int) -> tuple[int, str | None]: ...


class Bindings:
    """The driver through `cuda-bindings`."""

    def __init__(self) -> None:
        self._cu: Any = import_module("cuda.bindings.driver")
        self._cu.cuCheckpointProcessGetState(os.getpid())  # raises if the driver or a symbol is not there
        if not hasattr(self._cu, "cuCheckpointProcessRestore"):
            raise ImportError("this cuda-bindings lacks cuCheckpointProcessRestore; 13.0.2 or later has it")

    def state(self, pid: int) -> tuple[int, str | None]:
        try:
            code, state = self._cu.cuCheckpointProcessGetState(pid)
        except ValueError as failure:  # a newer driver's state
            return 0, str(failure)
        return int(code), STATES[int(state)] if int(code) == 0 else None

    def thread(self, pid: int) -> tuple[int, int | None]:
        code, thread = self._cu.cuCheckpointProcessGetRestoreThreadId(pid)
        return int(code), int(thread) if int(code) == 0 else None

    def lock(self, pid: int, timeout_ms: int) -> tuple[int, str | None]:
        arguments = self._cu.CUcheckpointLockArgs()
        arguments.timeoutMs = max(1, timeout_ms)  # 0 would mean for ever
        return int(self._cu.cuCheckpointProcessLock(pid, arguments)[0]), None

    def save(self, pid: int) -> tuple[int, str | None]:
        return int(self._cu.cuCheckpointProcessCheckpoint(pid, None)[0]), None

    def restore(self, pid: int) -> tuple[int, str | None]:
        return int(self._cu.cuCheckpointProcessRestore(pid, None)[0]), None

    def unlock(self, pid: int) -> tuple[int, str | None]:
        return int(self._cu.cuCheckpointProcessUnlock(pid, None)[0]), None


class Program:
    """The driver through the `cuda-checkpoint` program. One pid for each call; never `--toggle`, which is not
    idempotent.
    """

    def __init__(self, path: str) -> None:
        if (found := shutil.which(path)) is None:
            raise FileNotFoundError(f"{path} is no program that can be run")
        self._path = found

    def state(self, pid: int) -> tuple[int, str | None]:
        return self._run("--get-state", pid)

    def thread(self, pid: int) -> tuple[int, int | None]:
        code, text = self._run("--get-restore-tid", pid)
        words = [word for word in (text or "").split() if word.isdigit()]
        return code, int(words[-1]) if code == 0 and words else None

    def lock(self, pid: int, timeout_ms: int) -> tuple[int, str | None]:
        return self._run("--action", pid, "lock", "--timeout", str(max(1, timeout_ms)))

    def save(self, pid: int) -> tuple[int, str | None]:
        return self._run("--action", pid, "checkpoint")

    def restore(self, pid: int) -> tuple[int, str | None]:
        return self._run("--action", pid, "restore")

    def unlock(self, pid: int) -> tuple[int, str | None]:
        return self._run("--action", pid, "unlock")

    def _run(self, option: str, pid: int, *more: str) -> tuple[int, str | None]:
        done = subprocess.run(
            [self._path, option, *more, "--pid", str(pid)], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return 0, done.stdout.strip().lower()
        told = " ".join(f"{done.stdout} {done.stderr}".split()) or f"it ended with {done.returncode}"
        known = () if OWN_TROUBLE in told.lower() else WORDS
        return next((code for words, code in known if words in told.lower()), UNCLEAR), told


def is_still(pid: int, start: int) -> bool:
    """Whether this pid is the process that started then: alive, and no thread of another one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    leader = next((line.split()[1] for line in status.splitlines() if line.startswith("Tgid:")), "")
    return stat[0] not in "ZX" and int(stat[19]) == start and leader == str(pid)


def answer(driver: Driver, asked: dict[str, Any]) -> dict[str, Any]:
    """Make one call."""
    if asked["op"] == "ping":
        return {"code": 0}
    pid = int(asked["pid"])
    if not is_still(pid, int(asked["start"])):
        return {"code": GONE}
    begun = time.monotonic()
    more = (int(asked["timeout_ms"]),) if asked["op"] == "lock" else ()
    code, value = getattr(driver, asked["op"])(pid, *more)
    if code != 0 and not is_still(pid, int(asked["start"])):
        return {"code": GONE}
    told = {"value": value} if code == 0 else {"text": value}
    return {"code": code, **told, "seconds": time.monotonic() - begun}


def serve(driver: Driver, asked: IO[str], answers: IO[str]) -> None:
    """Answer until nobody asks any more."""
    for line in asked:
        try:
            told = answer(driver, json.loads(line))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the agent is told
            told = {"code": BROKEN, "text": f"{type(failure).__name__}: {failure}"}
        answers.write(json.dumps(told) + "\n")
        answers.flush()


def _driver(options: argparse.Namespace) -> Driver:
    if options.program:
        return Program(options.program)
    if options.driver:
        module, _, name = options.driver.partition(":")
        return getattr(import_module(module), name)()
    return Bindings()


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls the driver for the agent.")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--program", default="", help="cuda-checkpoint, instead of cuda-bindings")
    parser.add_argument("--driver", default="", help="module:class with the calls, instead of cuda-bindings")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != options.parent:
        return
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        driver = _driver(options)
    except Exception as failure:  # noqa: BLE001 - told instead of every answer
        answers.write(json.dumps({"code": BROKEN, "text": f"{failure}"}) + "\n")
        answers.flush()
        return
    answers.write(json.dumps({"code": 0}) + "\n")
    answers.flush()
    serve(driver, sys.stdin, answers)


if __name__ == "__main__":
    main()
