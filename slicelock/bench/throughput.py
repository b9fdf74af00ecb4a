"""How many turns a second one job takes when nobody contends, on an agentless slice.

The floor is two scripts that do nothing for each turn, sent on a connection such as the client's own, with
nothing around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import SecretStr

from slicelock.bench.bare import script
from slicelock.bench.figures import Goal, percentile
from slicelock.client import Slice
from slicelock.companion import close_all
from slicelock.embedded import EmbeddedServer
from slicelock.settings import Settings
from slicelock.store import Store
from slicelock.store.connect import pack
from slicelock.store.opening import Endpoint, opened
from slicelock.wire import Declare

SLICE = "bench"
ROUNDS = 10
WARM_UP = 50  # turns that are not counted


@dataclass(frozen=True, slots=True)
class Throughput:
    """How often a second."""

    evalsha_pairs_per_s: float
    turns_per_s: float

    @property
    def ratio(self) -> float:
        return self.turns_per_s / self.evalsha_pairs_per_s

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        return [Goal("turns against pairs of no-op scripts", self.ratio, 0.6, at_most=False)]

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        return {
            "evalsha_pairs_per_s": round(self.evalsha_pairs_per_s, 1),
            "turns_per_s": round(self.turns_per_s, 1),
            "ratio": round(self.ratio, 3),
        }


def measure(seconds: float, tell: Callable[[str], None]) -> Throughput:
    """Do both in turn, a part of the time each, and take the median of their rates."""
    with EmbeddedServer() as server:
        settings = Settings(redis_url=SecretStr(server.url), pool="bench", job="bench", run="bench")
        try:
            _declare(settings)
            doing = {"pairs": _pairs(settings), "turns": _turns(settings)}
            rates: dict[str, list[float]] = {name: [] for name in doing}
            for number in range(ROUNDS):
                tell(f"round {number + 1} of {ROUNDS}")
                for name, work in doing.items():
                    rates[name].append(_rate(work, seconds / ROUNDS))
        finally:
            close_all()
    return Throughput(percentile(rates["pairs"], 0.5), percentile(rates["turns"], 0.5))


def _declare(settings: Settings) -> None:
    store = Store(settings)
    store.run(Declare(SLICE, {}))
    store.close()


def _turns(settings: Settings) -> Callable[[], None]:
    slice_ = Slice(SLICE, settings=settings)

    def turn() -> None:
        slice_.acquire().yield_()

    for _ in range(WARM_UP):
        turn()
    return turn


def _pairs(settings: Settings) -> Callable[[], None]:
    text, sha = script("noop")
    link, _ = opened(Endpoint(settings, "bench"), settings.store_timeout)
    link.send_command("SCRIPT", "LOAD", text)
    link.read_response()

    def pair() -> None:
        for _ in range(2):
            link.send_packed_command(pack(("EVALSHA", sha, "0")))
            link.read_response()

    return pair


def _rate(work: Callable[[], None], seconds: float) -> float:
    done, begun = 0, time.perf_counter()
    until = begun + seconds
    while time.perf_counter() < until:
        work()
        done += 1
    return done / (time.perf_counter() - begun)
