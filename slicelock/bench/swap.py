"""How long a switch between two GPU jobs takes, beside the least that pinned copies of its bytes take."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from slicelock.bench.figures import Goal
from slicelock.bench.line_process import SwapProcess
from slicelock.bench.swap_driver import Driver
from slicelock.errors import ConfigurationError, SlicelockError
from slicelock.exchange import Exchange
from slicelock.host_memory import GIB, readable
from slicelock.scratch import scratch

SPARE = 2 * GIB
"""Device memory beside the tensors: contexts, and what must stay free."""
MARGIN = GIB // 2
DRIVER_CYCLES = 3
START_S = 0.02  # from telling both processes to the moment both begin

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to move a process's tensors: seconds out and in, cycle by cycle."""

    nbytes: int
    out: list[float]
    back: list[float]

    @property
    def switch_s(self) -> float:
        """Out and in again, later than the first time."""
        return median(self.out[1:]) + median(self.back[1:])

    def as_json(self) -> dict[str, object]:
        """First and later, in seconds and GB/s."""
        return {
            "first_out_s": round(self.out[0], 4),
            "first_in_s": round(self.back[0], 4),
            "out_s": round(median(self.out[1:]), 4),
            "in_s": round(median(self.back[1:]), 4),
            "out_gb_s": round(self.nbytes / median(self.out[1:]) / 1e9, 1),
            "in_gb_s": round(self.nbytes / median(self.back[1:]) / 1e9, 1),
            "all_out_s": [round(one, 4) for one in self.out],
            "all_in_s": [round(one, 4) for one in self.back],
        }


@dataclass(slots=True)
class Swap:
    """What was measured. Times are in seconds for `nbytes` each way."""

    nbytes: int
    facts: dict[str, Any]
    floor: dict[str, list[float]]
    offload: Way
    pinning: dict[str, Any]
    growth: dict[str, int]
    in_turn: list[float]
    fitting: list[float]
    filling: list[float]
    others: dict[str, Way] = field(default_factory=dict[str, Way])

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        out, back, both = (median(self.floor[way]) for way in ("out", "in", "both"))
        found = [
            Goal("offload, of the floor's speed", out / median(self.offload.out[1:]), 0.9, at_most=False),
            Goal("reload, of the floor's speed", back / median(self.offload.back[1:]), 0.9, at_most=False),
            Goal("first offload, of the floor's speed", out / self.offload.out[0], 0.9, at_most=False),
            Goal(
                "overlapped, both fit, to the duplex floor", median(self.fitting) / both, 1.15, at_most=True
            ),
            Goal(
                "overlapped, filling up, to the duplex floor", median(self.filling) / both, 1.35, at_most=True
            ),
        ]
        if driver := self.others.get("driver"):
            slower = driver.switch_s / self.offload.switch_s
            found.append(Goal("the driver's checkpoint, in times of the hook", slower, 12.0, at_most=False))
        return found

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        return {
            "gib": round(self.nbytes / GIB, 2),
            **{name: self.facts[name] for name in ("device", "torch", "cuda", "tensors")},
            "floor": {f"{way}_s": round(median(values), 4) for way, values in self.floor.items()}
            | {
                f"{way}_gb_s": round(self.nbytes / median(values) / 1e9, 1)
                for way, values in self.floor.items()
            },
            "pinning": self.pinning,
            "torch_offload": self.offload.as_json(),
            **{name: way.as_json() for name, way in self.others.items()},
            "in_turn_s": _told(self.in_turn),
            "overlapped_fitting_s": _told(self.fitting),
            "overlapped_filling_s": _told(self.filling),
            "growth_bytes": self.growth,
            "goals": {goal.name: round(goal.value, 3) for goal in self.goals()},
        }


def _told(seconds: Sequence[float]) -> dict[str, object]:
    return {"median": round(median(seconds), 4), "all": [round(one, 4) for one in seconds]}


def measure(nbytes: int, cycles: int, tell: Tell) -> Swap:
    """Run all of it. ConfigurationError where there is no GPU or no room for it."""
    if find_spec("torch") is None:
        raise ConfigurationError("PyTorch is not installed here.", advice="pip install torch, with CUDA.")
    tell("the floor: plain copies of pinned memory")
    with SwapProcess("plain") as plain:
        facts = plain.ask("facts")
        _refuse_small(facts, nbytes)
        floor = plain.ask("floor", nbytes=nbytes, cycles=cycles)
    with SwapProcess("offload") as a, SwapProcess("offload") as b:
        tell("making tensors and pinning host memory")
        facts |= a.ask("make", nbytes=nbytes, seed=1)
        prepared = a.ask("prepare")
        tell("TorchOffload, alone")
        offload, growth = _alone(a, nbytes, cycles)
        tell("two processes")
        b.ask("make", nbytes=nbytes, seed=2)
        b.ask("prepare")
        pair = Pair(a, b, facts["key"])
        in_turn = [pair.in_turn() for _ in range(cycles)]
        fitting = [pair.overlapped() for _ in range(cycles)]
        tell("two processes, when the device does not hold both")
        with pair.crowded():
            filling = [pair.filling() for _ in range(cycles)]
        pair.verify()
    return Swap(
        nbytes,
        facts,
        floor,
        offload,
        prepared,
        growth,
        in_turn,
        fitting,
        filling,
        others(nbytes, cycles, tell),
    )


def others(nbytes: int, cycles: int, tell: Tell) -> dict[str, Way]:
    """Other ways to move the same bytes, as far as they are installed."""
    found: dict[str, Way] = {}
    if find_spec("torch_memory_saver"):
        tell("MemorySaver, alone")
        with SwapProcess("saver", _preloaded()) as saver:
            saver.ask("make", nbytes=nbytes, seed=3)
            found["memory_saver"], _ = _alone(saver, nbytes, cycles)
    if find_spec("cuda"):
        tell("the driver's checkpoint, alone")
        try:
            found["driver"] = _by_driver(nbytes)
        except ConfigurationError as failure:
            tell(str(failure))
    return found


def _by_driver(nbytes: int) -> Way:
    """A process without a hook, saved by the driver: slow enough for few cycles to tell."""
    with SwapProcess("bare") as bare, Driver() as driver:
        bare.ask("make", nbytes=nbytes, seed=4)
        before, pid, way = bare.ask("checksum"), bare.pid, Way(nbytes, [], [])
        for _ in range(DRIVER_CYCLES):
            way.out.append(driver.out(pid))
            way.back.append(driver.back(pid))
        _same(before, bare.ask("checksum"))
    return way


def _preloaded() -> dict[str, str]:
    utils: Any = import_module("torch_memory_saver.utils")
    return {"LD_PRELOAD": str(utils.get_binary_path_from_package("torch_memory_saver_hook_mode_preload"))}


def _alone(actor: SwapProcess, nbytes: int, cycles: int) -> tuple[Way, dict[str, int]]:
    """One process out and in; and how much its memory grew after the first cycle."""
    before, way = actor.ask("checksum"), Way(nbytes, [], [])
    grown = actor.ask("facts")
    for number in range(cycles + 1):
        for verb, times in (("offload", way.out), ("reload", way.back)):
            times.append(_seconds(actor.ask(verb)))
        if number == 0:
            grown = actor.ask("facts")
    after = actor.ask("facts")
    _same(before, actor.ask("checksum"))
    return way, {"host": after["resident"] - grown["resident"], "device": grown["free"] - after["free"]}


def _seconds(*answers: dict[str, Any]) -> float:
    return max(one["ended"] for one in answers) - min(one["begun"] for one in answers)


def _same(before: dict[str, Any], after: dict[str, Any]) -> None:
    if before != after:
        raise SlicelockError("The tensors are not what they were: their checksums differ.")


def _refuse_small(facts: dict[str, Any], nbytes: int) -> None:
    needed = 2 * nbytes + SPARE
    if facts["free"] < needed:
        raise ConfigurationError(
            f"{facts['device']} has {readable(facts['free'])} free; two processes need {readable(needed)}.",
            advice="Give a smaller --gib.",
        )


class Pair:
    """Two processes that change places on one device: one is on it, the other in host memory."""

    def __init__(self, here: SwapProcess, away: SwapProcess, key: str) -> None:
        self._here, self._away, self._key = here, away, key
        self._checksums = {id(one): one.ask("checksum") for one in (here, away)}
        away.ask("offload")

    def in_turn(self) -> float:
        """One out, then the other in; seconds."""
        first = self._here.ask("offload")
        second = self._away.ask("reload")
        return self._changed(_seconds(first, second))

    def overlapped(self) -> float:
        """One out while the other comes in, both fitting; seconds."""
        return self._both({})

    def filling(self) -> float:
        """The same where the other must fill what the first has left, over an exchange page; seconds."""
        with scratch(Path("/dev/shm"), "bench") as folder:
            page = folder / "page"
            Exchange.create(page, {self._key: int(self._here.ask("facts")["free"])}, MARGIN).close()
            return self._both({"exchange": str(page)})

    def verify(self) -> None:
        """That both have what they had. SlicelockError if not."""
        for _ in range(2):
            _same(self._checksums[id(self._here)], self._here.ask("checksum"))
            self.in_turn()

    @contextmanager
    def crowded(self) -> Generator[None]:
        """A device with hardly more room than what is on it."""
        with ExitStack() as stack:
            hog = stack.enter_context(SwapProcess("plain"))
            free = int(hog.ask("facts")["free"])
            hog.ask("hold", nbytes=max(0, free - SPARE) // GIB * GIB)
            yield

    def _both(self, options: dict[str, str]) -> float:
        at = time.monotonic() + START_S
        self._here.tell("offload", at=at, **options)
        self._away.tell("reload", at=at, **options)
        answers = (self._here.answer(), self._away.answer())
        return self._changed(_seconds(*answers))

    def _changed(self, seconds: float) -> float:
        self._here, self._away = self._away, self._here
        return seconds
