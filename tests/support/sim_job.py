"""A job for tests of real processes: integer arithmetic in device memory, off by a bit if anyone interferes.

    python -m tests.support.sim_job '<JSON of Plan>'

Every lane is a thread. What a lane does, and what must come out of it, follows from the plan alone
(`expected`). The job tells what happens as JSON lines: `held`, `computing`, `rests`, `yielded`, `lost`, and
at last `done` with its results.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np

SIZE = 3000  # numbers in each array: 24 kB
REFUSED_S = 0.2
FACTOR, SUMMAND = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


@dataclass(frozen=True)
class Plan:
    """What a job is to do. `devices` has each slice's device; `member` tells the arrays of members apart."""

    seed: int
    turns: int
    devices: Mapping[str, str]
    lanes: tuple[str, ...] = ("main",)
    member: str = "0"
    both: float = 0.0  # share of the turns that ask for all slices at once
    compute_s: float = 0.02  # the longest time of one use
    away_s: float = 0.02  # the longest time between two turns
    hesitate_s: float = 0.0  # in a turn, before the first use
    until: str = ""  # a file that ends every lane after its present turn, however many turns are left

    def text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Turn:
    """One turn of a lane: the slices it asks for, the rounds of arithmetic, and the times that go with it."""

    slices: tuple[str, ...]
    rounds: int
    compute_s: float
    away_s: float
    early: bool


def turns(plan: Plan, lane: str) -> Iterator[Turn]:
    """The turns of a lane, the same for every member of the run."""
    dice = random.Random(f"{plan.seed}/{lane}")
    names = sorted(plan.devices)
    for _ in range(plan.turns):
        slices = tuple(names) if dice.random() < plan.both else (dice.choice(names),)
        yield Turn(
            slices,
            dice.randint(2, 6),
            dice.uniform(0, plan.compute_s),
            dice.uniform(0, plan.away_s),
            dice.random() < 0.5,
        )


def start_of(plan: Plan, lane: str, slice_: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(f"{plan.seed}/{plan.member}/{lane}/{slice_}".encode()).digest()[:8])
    return np.arange(SIZE, dtype=np.uint64) ^ np.uint64(seed)


def advance(array: np.ndarray) -> None:
    array *= FACTOR
    array += SUMMAND


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def expected(plan: Plan, taken: Mapping[str, int] | None = None) -> dict[str, str]:
    """The results of a job that nobody has interfered with, by lane and slice; `taken` has the number of
    turns of each lane that was ended early."""
    arrays: dict[str, np.ndarray] = {}
    for lane in plan.lanes:
        for turn in islice(turns(plan, lane), taken[lane] if taken else None):
            for name in turn.slices:
                array = arrays.setdefault(f"{lane}/{name}", start_of(plan, lane, name))
                for _ in range(turn.rounds):
                    advance(array)
    return {name: digest(array) for name, array in arrays.items()}


# ---------------------------------------------------------------- the process


class Lane(threading.Thread):
    """One lane at work. Its results are read from device memory in its last use of each device."""

    def __init__(self, plan: Plan, lane: str) -> None:
        import slicelock
        from slicelock.sim import SimDevice

        super().__init__(name=f"lane-{lane}")
        self.plan, self.lane = plan, lane
        self.devices = {name: SimDevice.attach(device) for name, device in plan.devices.items()}
        self.slice_of = cache(lambda names: slicelock.Slice(*names, lane=lane))
        self.taken = 0
        self.arrays: dict[str, np.ndarray] = {}
        self.results: dict[str, str] = {}
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for turn in turns(self.plan, self.lane):
                if self.plan.until and Path(self.plan.until).exists():
                    return
                self._take(turn)
                self.taken += 1
                tell("yielded", lane=self.lane)
                time.sleep(turn.away_s)
        except BaseException as failure:
            self.failure = failure

    def _take(self, turn: Turn) -> None:
        """One turn. When it is lost, what was computed is saved, and the rest is computed in another turn."""
        from slicelock import LeaseLost, StoreError

        left = list(turn.slices)
        while left:
            try:
                with self.slice_of(turn.slices).turn() as held:
                    tell("held", lane=self.lane, slices=turn.slices)
                    time.sleep(self.plan.hesitate_s)
                    held.check()
                    while left:
                        self._compute(turn, name := left[0], held)
                        left.pop(0)
                        if turn.early and left:
                            held.yield_(name)
            except LeaseLost as loss:
                tell("lost", lane=self.lane, why=type(loss).__name__, state_saved=loss.state_saved)
            except StoreError as failure:  # Redis takes nothing more: it has no memory left
                tell("refused", lane=self.lane, why=str(failure))
                time.sleep(REFUSED_S)

    def _compute(self, turn: Turn, name: str, held: object) -> None:
        device = self.devices[name]
        with device.use(held):  # type: ignore[arg-type]
            tell("computing", lane=self.lane, slice=name)
            if name not in self.arrays:
                self.arrays[name] = device.array(SIZE, "uint64")
                self.arrays[name][:] = start_of(self.plan, self.lane, name)
            for _ in range(turn.rounds):
                advance(self.arrays[name])
                time.sleep(turn.compute_s / turn.rounds)
            self.results[f"{self.lane}/{name}"] = digest(self.arrays[name])
        tell("rests", lane=self.lane, slice=name)


_telling = threading.Lock()


def tell(event: str, **facts: object) -> None:
    with _telling:
        print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **facts}), flush=True)


def main() -> None:
    """Run the plan of the command line."""
    raw = json.loads(sys.argv[1])
    plan = Plan(**{**raw, "lanes": tuple(raw["lanes"])})
    lanes = [Lane(plan, lane) for lane in plan.lanes]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    if failures := [lane.failure for lane in lanes if lane.failure]:
        raise failures[0]
    tell(
        "done",
        results={name: value for lane in lanes for name, value in lane.results.items()},
        taken={lane.lane: lane.taken for lane in lanes},
    )


if __name__ == "__main__":
    main()
