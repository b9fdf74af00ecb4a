"""What a test must not leave behind: threads, child processes, connections, keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import redis

T = TypeVar("T")
GRACE_S = 3.0  # a thread that was told to end may need a moment


def gone(look: Callable[[], Iterable[T]]) -> list[T]:
    """What `look` still finds after a grace period; empty as soon as it finds nothing."""
    deadline = time.monotonic() + GRACE_S
    while found := list(look()):
        if time.monotonic() > deadline:
            return found
        time.sleep(0.005)
    return []


def children() -> set[int]:
    """The child processes of this one, zombies included."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found.update(int(pid) for pid in (task / "children").read_text().split())
    return found


def describe(pid: int) -> str:
    """A process in words, or `gone`."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return f"{pid} (gone)"
    return f"{pid} ({command or 'zombie'})"


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread is not threading.current_thread()}


def connections(client: redis.Redis) -> set[int]:
    """Ids of the connections to a server, without the one that asks."""
    mine = client.client_id()
    return {int(entry["id"]) for entry in client.client_list()} - {mine}


def keys(client: redis.Redis) -> list[str]:
    return sorted(key.decode(errors="replace") for key in client.scan_iter(count=1000))
