"""What `slicelock top` costs: Redis' processor while somebody looks, and the time of one drawing."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import redis

from slicelock.bench.figures import Goal, Spread
from slicelock.embedded import EmbeddedServer
from slicelock.events import Event
from slicelock.picture import Picture
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.tui.app import take, undisturbed, view_of
from slicelock.tui.model import View
from slicelock.tui.paint import Painter
from slicelock.tui.panels import frame
from slicelock.tui.source import Seen, Source
from slicelock.wire import Acquire, Beat, Declare

POOL, DEVICES, JOBS = "top", 8, 12
LEASE_MS, SILENT_MS = 3_600_000, 60_000
REFRESH_S = 1.0
SIZES = {"80x24": (80, 24), "200x50": (200, 50)}
DRAWINGS = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """Shares of one core, and times in ms (`redraw_ms`: the processor's). `idle`: nobody looks."""

    slices: int
    waiters: int
    redis: float
    idle: float
    look_ms: Spread
    redraw_ms: dict[str, Spread]

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        slow = max(one.p99 for one in self.redraw_ms.values())
        return [
            Goal("Redis while somebody looks, % of a core", 100 * self.redis, 1.0, at_most=True),
            Goal("one drawing (p99), ms", slow, 50.0, at_most=True),
        ]

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        return {
            "slices": self.slices,
            "waiters": self.waiters,
            "redis_percent_of_a_core": round(100 * self.redis, 3),
            "redis_idle_percent": round(100 * self.idle, 3),
            "redis_against_idle": round(self.redis / self.idle, 2) if self.idle else None,
            "look_ms": self.look_ms.rounded(),
            "redraw_ms": {size: one.rounded() for size, one in self.redraw_ms.items()},
        }


def measure(slices: int, waiters: int, seconds: float, tell: Callable[[str], None]) -> Cost:
    """Fill a pool, look at it for a while, and draw what was seen."""
    with EmbeddedServer() as server:
        settings = StoreSettings(redis_url=server.url, pool=POOL)  # type: ignore[arg-type]
        store = Store(settings)
        tell(f"filling a pool with {slices} slices and {waiters} waiters")
        fill(store, slices, waiters)
        store.close()
        tell(f"nobody looks, for {seconds:g} s")
        idle = _share(server, seconds, lambda: time.sleep(seconds))
        tell(f"somebody looks, for {seconds:g} s")
        view, looks = view_of(settings, readonly=True), list[float]()
        redis = _share(server, seconds, lambda: looks.extend(_look(settings, view, seconds)))
    tell("drawing")
    with undisturbed():
        drawn = {name: _drawn(view, *SIZES[name]) for name in SIZES}
    return Cost(slices, waiters, redis, idle, Spread.of(looks), drawn)


def fill(store: Store, slices: int, waiters: int) -> None:
    """A pool with agents that report, a holder for each slice, and waiters."""
    names = [f"slice-{number:03}" for number in range(slices)]
    for number, name in enumerate(names):
        store.run(
            Declare(name, {f"node-{number:03}": [_device(number, device) for device in range(DEVICES)]})
        )
        store.run(_beat(number, name))
    for number in range(slices + waiters):
        run, name, lease = f"run-{number}", names[number % slices], LEASE_MS
        job = f"job-{number % JOBS}"
        store.run(Acquire(run, job, "main", 1, "0", 1, (name,), f"{run}:0:1:0", lease, lease, phase="train"))
    for number, name in enumerate(names):
        fence = int(store.run(_beat(number, name)).wanted[name]["fence"])
        store.run(_beat(number, name, _ready(name, fence)))


def _device(number: int, device: int) -> str:
    return f"GPU-{number:03}-{device}"


def _ready(name: str, fence: int) -> dict[str, Any]:
    facts = {"what": "", "reason": "", "run": "", "moved": False, "bytes": 0, "seconds": 0}
    return {"slice": name, "fence": fence, "outcome": "READY", **facts}


def _beat(number: int, name: str, *results: dict[str, Any]) -> Beat:
    devices = {
        _device(number, device): {"used": device << 30, "total": 141 << 30, "busy": 10 * device}
        for device in range(DEVICES)
    }
    shown: dict[str, Any] = {
        "run": "",
        "lane": "",
        "k": 0,
        "fence": 0,
        "top": 0,
        "doing": "",
        "saved": [],
        "loaded": [],
    }
    report: dict[str, Any] = {
        "slices": {name: {**shown, "devices": devices}},
        "results": results,
        "exits": [],
        "commands": [],
    }
    return Beat(f"node-{number:03}", "boot", "0.1.0", SILENT_MS, {**report, "known": {}})


def server_cpu_s(url: str) -> float:
    """Seconds of processor time that a server has used."""
    with cast(Any, redis).from_url(url) as client:
        told: dict[str, Any] = client.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _share(server: EmbeddedServer, seconds: float, meanwhile: Callable[[], None]) -> float:
    before, begun = server_cpu_s(server.url), time.perf_counter()
    meanwhile()
    return (server_cpu_s(server.url) - before) / (time.perf_counter() - begun)


def _look(settings: StoreSettings, view: View, seconds: float) -> Iterator[float]:
    """Refresh for a while as the view does; what each refresh took, in ms."""
    source = Source(settings, REFRESH_S, readonly=True)
    ends = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < ends:
        seen: Seen = source.look()
        yield (time.perf_counter() - begun) * 1000
        view.take_events(_turns(seen.picture))
        take(view, seen, time.monotonic())
        time.sleep(max(0.0, min(begun + REFRESH_S, ends) - time.perf_counter()))
    source.close()


def _turns(picture: Picture) -> Iterator[Event]:
    """A turn for each slice and refresh, so that there is something to draw."""
    for number, one in enumerate(picture.slices):
        facts = {"slices": one.name, "run": f"past-{number % JOBS}", "lane": "main", "k": str(picture.now_ms)}
        facts |= {"job": f"job-{number % JOBS}", "phase": "train", "held_ms": "700"}
        yield Event("", "ended", picture.now_ms - number % 1000 - 1, {**facts, "outcome": "yielded"})


def _drawn(view: View, width: int, height: int) -> Spread:
    """Drawings of a size, each after a key, from the view to what a terminal gets, in processor time."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    painter, times = Painter(out, view.palette, colour=True), list[float]()
    for _ in range(DRAWINGS):
        view.press("down", time.monotonic())
        begun = time.thread_time()
        painter.lines(frame(view, time.monotonic(), painter.pen, width, height), width)
        times.append((time.thread_time() - begun) * 1000)
    return Spread.of(times)
