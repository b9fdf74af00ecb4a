"""How long it takes from A's yield to B's turn, when there is nothing to move and B waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from slicelock.bench.figures import Goal, Spread
from slicelock.bench.line_process import SideProcess
from slicelock.embedded import EmbeddedServer
from slicelock.local_agent import LocalAgent
from slicelock.scratch import scratch, temporary

ROUNDS = 10
SLICE = "bench"
WARM_UP = 5  # hand-overs of each kind that are not counted
SETTLE_S = (0.010, 0.030)
# A lock that polls every 100 ms is let go at any point of its interval.
SETTLE_POLLED_S = (0.010, 0.110)


@dataclass(frozen=True, slots=True)
class Handoff:
    """Times of hand-overs, in ms."""

    samples: int
    floor: Spread
    slicelock: Spread
    redis_lock: Spread
    python_redis_lock: Spread | None

    @property
    def ratio_p50(self) -> float:
        return self.slicelock.p50 / self.floor.p50

    @property
    def ratio_p99(self) -> float:
        return self.slicelock.p99 / self.floor.p99

    @property
    def speedup(self) -> float:
        return self.redis_lock.p50 / self.slicelock.p50

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        return [
            Goal("ratio to the floor, p50", self.ratio_p50, 2.0, at_most=True),
            Goal("ratio to the floor, p99", self.ratio_p99, 4.0, at_most=True),
            Goal("faster than redis.lock.Lock", self.speedup, 20.0, at_most=False),
        ]

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        other = self.python_redis_lock
        return {
            "samples": self.samples,
            "floor_ms": self.floor.rounded(),
            "slicelock_ms": self.slicelock.rounded(),
            "redis_lock_ms": self.redis_lock.rounded(),
            "python_redis_lock_ms": other.rounded() if other else None,
            "ratio_p50": round(self.ratio_p50, 3),
            "ratio_p99": round(self.ratio_p99, 3),
            "speedup_vs_redis_lock": round(self.speedup, 1),
        }


class Pair:
    """Two processes that hand something over to and fro."""

    def __init__(self, a: SideProcess, b: SideProcess, settle_s: tuple[float, float]) -> None:
        self._holder, self._waiter = a, b
        self._settle_s = settle_s
        a.ask("first")

    def hand_over(self) -> float:
        """From the holder's yield to the waiter's turn, in ms; then they change places."""
        self._waiter.tell("acquire")
        time.sleep(random.uniform(*self._settle_s))
        self._holder.tell("give")
        had = self._waiter.answer()
        begun = self._holder.answer()
        self._holder, self._waiter = self._waiter, self._holder
        return (had - begun) / 1e6

    def finish(self) -> None:
        """The holder gives it back for good."""
        self._holder.ask("give")


def measure(samples: int, tell: Callable[[str], None]) -> Handoff:
    """Run hand-overs of every kind, a few of each in turn, and summarise them."""
    wanted = {"bare": samples, "slicelock": samples, "redis_lock": max(samples // 4, ROUNDS)}
    if find_spec("redis_lock"):
        wanted["python_redis_lock"] = wanted["redis_lock"]
    times: dict[str, list[float]] = {kind: [] for kind in wanted}
    with pairs(tuple(wanted)) as made:
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            for kind, count in wanted.items():
                times[kind] += _round(made[kind], -(-count // ROUNDS), warm=number > 0)
        for pair in made.values():
            pair.finish()
    spreads = {kind: Spread.of(values) for kind, values in times.items()}
    return Handoff(
        len(times["slicelock"]),
        spreads["bare"],
        spreads["slicelock"],
        spreads["redis_lock"],
        spreads.get("python_redis_lock"),
    )


def _round(pair: Pair, count: int, warm: bool) -> Iterator[float]:
    for _ in range(0 if warm else WARM_UP):
        pair.hand_over()
    for _ in range(count):
        yield pair.hand_over()


@contextmanager
def pairs(kinds: tuple[str, ...]) -> Generator[Mapping[str, Pair]]:
    """A pair of processes of each kind, one server and one agent for all."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        env = _environment(server.url, stack)
        stack.enter_context(LocalAgent({SLICE: "sim:bench"}, env))
        stack.enter_context(SideProcess("node", server.url, endless=True))
        yield {kind: _pair(kind, server.url, env, stack) for kind in kinds}


def _environment(url: str, stack: ExitStack) -> dict[str, str]:
    memory = stack.enter_context(scratch(Path("/dev/shm"), "bench"))
    state = stack.enter_context(scratch(temporary(), "bench"))
    return {
        "SLICELOCK_REDIS_URL": url,
        "SLICELOCK_POOL": "bench",
        "SLICELOCK_STATE_DIR": str(state),
        "SLICELOCK_SIM_DIR": str(memory),
    }


def _pair(kind: str, url: str, env: Mapping[str, str], stack: ExitStack) -> Pair:
    sides = [
        stack.enter_context(SideProcess(kind, url, *names, env={**env, "SLICELOCK_JOB": names[0]}))
        for names in (("a", "b"), ("b", "a"))
    ]
    return Pair(sides[0], sides[1], SETTLE_POLLED_S if kind == "redis_lock" else SETTLE_S)
