"""Many switches through agent and Redis: the same bits as alone, and no growth of host or device memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.own_gpu import used
from tests.gpu.stage import GIB, Job, Stage

WARM = 3
GROWTH = GIB // 4


class Memory:
    """Bytes of host memory of each process, and of the GPU."""

    def __init__(self, *jobs: Job) -> None:
        self._pids = [job.pid for job in jobs]

    def now(self) -> list[int]:
        return [*map(resident, self._pids), used()]


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


@pytest.mark.slow
@pytest.mark.parametrize(("way", "gib", "rounds"), [("hook", 2, 26), ("cuda", 1, 6)])
def test_no_growth_and_the_same_bits(
    stage: Stage, figures: Callable[..., None], way: str, gib: int, rounds: int
) -> None:
    stage.serve(SLICELOCK_FALLBACK="hooks" if way == "hook" else "cuda")
    options = ("hook",) if way == "hook" else ()
    a, b = stage.start(("a", gib, *options), ("b", gib, *options))
    told: dict[str, list[Any]] = {"a": [], "b": []}
    memory = Memory(a, b)
    first: list[int] = []
    waits: list[float] = []
    for number in range(rounds):
        for job in (a, b):
            facts = job.turn()
            told[job.run].append(facts["checksum"])
            waits.append(facts["waited"])
        if number == WARM:
            first = memory.now()
    grown = [after - before for before, after in zip(first, memory.now(), strict=True)]
    figures(way=way, gib=gib, switches=2 * rounds - 1, grown_mib=[one >> 20 for one in grown], waits_s=waits)
    assert max(grown) < GROWTH
    other = stage.job("other", gib, SLICELOCK_MODE="off")
    alone = [other.turn()["checksum"] for _ in range(rounds)]
    assert told == {"a": alone, "b": alone}
