"""One side of a hand-over, in a process of its own: `python -m slicelock.bench.side KIND URL NAME OTHER`.

It reads a word a line from standard input and answers each with the monotonic time of what it did, in ns:
`first` takes the turn when nobody has it, `acquire` waits for it and tells when it had it, `give` yields it
and tells when it began to. Its end of input is its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol

from slicelock.bench import bare, locks


class Side(Protocol):
    """What a kind of hand-over can do."""

    def first(self) -> None: ...
    def acquire(self) -> None: ...
    def give(self) -> None: ...
    def close(self) -> None: ...


def _ours(url: str, name: str, other: str) -> Side:
    from slicelock.bench.ours import SliceSide

    return SliceSide(url, name, other)


KINDS: dict[str, Callable[[str, str, str], Side]] = {
    "bare": bare.BareSide,
    "slicelock": _ours,
    "redis_lock": locks.RedisLockSide,
    "python_redis_lock": locks.PythonRedisLockSide,
}


def play(side: Side) -> None:
    """Do what standard input says."""
    for line in sys.stdin:
        word = line.strip()
        begun = time.monotonic_ns()
        getattr(side, word)()
        print(begun if word == "give" else time.monotonic_ns(), flush=True)


def main() -> int:
    """Play one side, or be the node of the bare chain."""
    kind, url, *names = sys.argv[1:]
    if kind == "node":
        bare.be_node(url)
    side = KINDS[kind](url, *names)
    print("ready", flush=True)
    try:
        play(side)
    finally:
        side.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
