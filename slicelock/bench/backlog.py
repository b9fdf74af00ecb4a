"""What a turn costs when many wait: one acquire, one grant and one yield with a queue of some length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slicelock.bench.figures import Goal, percentile
from slicelock.embedded import EmbeddedServer
from slicelock.errors import SlicelockError
from slicelock.settings import StoreSettings
from slicelock.store.sync import Store
from slicelock.wire import Acquire, Declare, Yield

SLICE = "bench"
ROUNDS = 20
TURNS_PER_ROUND = 50
LEASE_MS = 3_600_000  # nobody sends heartbeats here, and nobody may lapse


@dataclass(frozen=True, slots=True)
class Backlog:
    """The time of one turn, in ms, by the number of requests that wait."""

    per_turn_ms: dict[int, float]

    @property
    def ratio(self) -> float:
        """The longest queue's against the shortest one's."""
        return self.per_turn_ms[max(self.per_turn_ms)] / self.per_turn_ms[min(self.per_turn_ms)]

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        return [Goal("longest against shortest queue", self.ratio, 1.5, at_most=True)]

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        times = {str(waiters): round(ms, 4) for waiters, ms in sorted(self.per_turn_ms.items())}
        return {"per_turn_ms": times, "ratio": round(self.ratio, 3)}


class Queue:
    """A slice of a pool of its own, held by one run, with others waiting for it."""

    def __init__(self, url: str, waiters: int) -> None:
        self._store = Store(StoreSettings(redis_url=url, pool=f"queue-{waiters}"))  # type: ignore[arg-type]
        self._store.run(Declare(SLICE, {}))
        self._runs = [f"run-{number}" for number in range(waiters + 1)]
        for run in self._runs:
            self._ask(run, 1)
        self._served = dict.fromkeys(self._runs, 1)
        self._holder = 0

    def turn(self) -> None:
        """The holder yields and asks again, at the end of the queue; the next one has the turn."""
        run = self._runs[self._holder]
        self._holder = (self._holder + 1) % len(self._runs)
        following = self._runs[self._holder]
        self._store.run(Yield(run, "main", self._served[run], "0"))
        if self._ask(following, self._served[following]) != "HELD":
            raise SlicelockError(f"{following} should have had the turn.")
        self._served[run] += 1
        self._ask(run, self._served[run])

    def close(self) -> None:
        """Leave no connection behind; the keys go with the server."""
        self._store.close()

    def _ask(self, run: str, k: int) -> str:
        call = Acquire(run, "bench", "main", k, "0", 1, (SLICE,), f"{run}:0:1:0", LEASE_MS, LEASE_MS)
        return self._store.run(call).outcome


def measure(waiters: Sequence[int], tell: Callable[[str], None]) -> Backlog:
    """Take turns with each number of waiters, a few of each in turn."""
    times: dict[int, list[float]] = {number: [] for number in waiters}
    with EmbeddedServer() as server:
        queues: dict[int, Queue] = {}
        for number in waiters:
            tell(f"filling a queue of {number}")
            queues[number] = Queue(server.url, number)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            for length, queue in queues.items():
                times[length].append(_round(queue))
        for queue in queues.values():
            queue.close()
    return Backlog({length: percentile(values, 0.5) for length, values in times.items()})


def _round(queue: Queue) -> float:
    begun = time.perf_counter()
    for _ in range(TURNS_PER_ROUND):
        queue.turn()
    return (time.perf_counter() - begun) * 1000 / TURNS_PER_ROUND
