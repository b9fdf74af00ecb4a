"""A plausible day of a pool as events, the same each time: jobs that generate, grade, train and sync."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass

Fields = dict[str, str]
BEGIN_MS = 1_800_000_000_000
GB = 10**9
PHASES = (("generate", 14_000, 1_500), ("train", 9_000, 12_000), ("sync", 1_200, 400))
"""Of each turn of a step: its phase, how long it takes, and how long the job is away after it, in ms."""


@dataclass(slots=True)
class _Job:
    name: str
    size: int
    pace: float
    turn: int = 0


def day(events: int, slices: int = 2, jobs: int = 3, seed: int = 1) -> list[tuple[int, Fields]]:
    """At least so many events with their times in ms, in order; those of several slices alternate."""
    told: list[tuple[int, Fields]] = []
    for number in range(slices):
        source = _slice(f"pool-{chr(97 + number)}", jobs, random.Random(seed * 100 + number))
        told += (next(source) for _ in range(-(-events // slices)))
    return sorted(told, key=lambda one: one[0])


def _slice(name: str, jobs: int, dice: random.Random) -> Iterator[tuple[int, Fields]]:
    """One slice's events, for ever: first come, first served, with a switch before each turn."""
    waiting = [(BEGIN_MS + 2_000 * n, n) for n in range(jobs)]
    there = [
        _Job(f"grpo-{name[-1]}{n + 1}", dice.randint(20, 60) * GB, dice.uniform(0.7, 1.4))
        for n in range(jobs)
    ]
    yield BEGIN_MS, _fields("declared", BEGIN_MS, slice=name, nodes="gpu-1")
    yield BEGIN_MS, _fields("settled", BEGIN_MS, slice=name, fence=0)
    free_ms, loaded = BEGIN_MS, -1
    while True:
        asked, number = heapq.heappop(waiting)
        job, begun = there[number], max(asked, free_ms)
        phase, length, away = PHASES[job.turn % len(PHASES)]
        job.turn += 1
        if dice.random() < 0.004:
            begun = yield from _silence(name, begun, begun + dice.randint(10_000, 40_000))
        about: dict[str, object] = {
            "run": f"{job.name}-7f3a",
            "job": job.name,
            "lane": "main",
            "k": job.turn,
            "phase": phase,
        }
        steps = _steps(about, job, there[loaded].size) if loaded not in (number, -1) else []
        held = yield from _begin({**about, "slices": name}, asked, begun, steps)
        free_ms, loaded = held + int(length * job.pace * dice.uniform(0.7, 1.5)), number
        about |= {"slices": name, "outcome": "expired" if dice.random() < 0.002 else "yielded"}
        yield free_ms, _fields("ended", free_ms, **about, held_ms=free_ms - held)
        heapq.heappush(waiting, (free_ms + int(away * job.pace * dice.uniform(0.6, 1.6)), number))


def _silence(name: str, begun: int, until: int) -> Generator[tuple[int, Fields], None, int]:
    about = {"slice": name, "node": "gpu-1"}
    yield begun, _fields("blocked", begun, **about, kind="silent", reason="node gpu-1 is silent")
    yield until, _fields("healed", until, **about)
    return until


def _begin(
    about: dict[str, object], asked: int, begun: int, steps: list[dict[str, object]]
) -> Generator[tuple[int, Fields], None, int]:
    """The way to held, and when that was."""
    fence, where = begun * 1024, about["slices"]
    if begun > asked:
        yield asked, _fields("queued", asked, **about, waited_ms=0, priority=0)
    yield begun, _fields("switching", begun, **about, slice=where, fence=fence)
    held = begun + 2 + round(sum(float(str(one["seconds"])) for one in steps) * 1000)
    moved = sum(int(str(one["bytes"])) for one in steps)
    result = {
        "slice": where,
        "node": "gpu-1",
        "fence": fence,
        "bytes": moved,
        "seconds": (held - begun) / 1000,
    }
    told = {"steps": json.dumps(steps)} if steps else {}
    yield held, _fields("ready", held, **about, **result, busy=60 + fence % 35, **told)
    yield held, _fields("held", held, **about, waited_ms=held - asked, fences=fence)
    return held


def _steps(about: dict[str, object], job: _Job, out: int) -> list[dict[str, object]]:
    moves = (("offload", "the one before", out, 50e9), ("reload", about["run"], job.size, 48e9))
    return [
        {"step": step, "run": run, "way": "hooks", "bytes": size, "seconds": size / speed}
        for step, run, size, speed in moves
    ]


def _fields(kind: str, at_ms: int, /, **facts: object) -> Fields:
    return {"type": kind, "t": str(at_ms), **{name: str(value) for name, value in facts.items()}}
