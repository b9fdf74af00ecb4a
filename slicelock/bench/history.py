"""What history costs: writing events while turns are taken, and reading a day of them.

Turns are taken with the scripts as they are, and with scripts that write no events; the difference is set
against the time of a client's whole turn. Then a day's events are read from Redis, folded, reported and
drawn.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from slicelock.bench.day import BEGIN_MS, day
from slicelock.bench.figures import Goal, percentile
from slicelock.client import Slice
from slicelock.companion import close_all
from slicelock.embedded import EmbeddedServer
from slicelock.history import History
from slicelock.history.bulk import in_bulk
from slicelock.history.drawing import drawing
from slicelock.history.page import page
from slicelock.history.report import report
from slicelock.identity import ProcessIdentity
from slicelock.keys import Keys
from slicelock.scratch import scratch, temporary
from slicelock.scripts import lua_root
from slicelock.settings import Settings, StoreSettings
from slicelock.store import EventReader, Store
from slicelock.store.connect import pack
from slicelock.store.opening import Endpoint, opened
from slicelock.store.raw_link import RawLink
from slicelock.wire import Acquire, Declare, Yield

ROUNDS, ROUND_S = 30, 0.1
SLICE = "bench"
EVENT = re.compile(r"^local function event\(.*?^end$", re.MULTILINE | re.DOTALL)
PIPELINE = 500  # events that are written at once


@dataclass(frozen=True, slots=True)
class HistoryCosts:
    """Times in seconds; `turn_s` and `event_s` are for one turn."""

    events: int
    turn_s: float
    event_s: float
    read_s: float
    fold_s: float
    report_s: float
    page_s: float
    page_bytes: int

    @property
    def writing(self) -> float:
        """Writing events as a share of a turn."""
        return self.event_s / self.turn_s

    @property
    def reported_s(self) -> float:
        """From Redis to the report."""
        return self.read_s + self.fold_s + self.report_s

    def goals(self) -> list[Goal]:
        """What the figures should reach."""
        return [
            Goal("writing events, as a share of a turn", self.writing, 0.1, at_most=True),
            Goal(
                "seconds to a report of 100,000 events", self.reported_s * 1e5 / self.events, 5, at_most=True
            ),
        ]

    def as_json(self) -> dict[str, object]:
        """The figures by name."""
        times = {name: round(getattr(self, name), 3) for name in ("read_s", "fold_s", "report_s", "page_s")}
        return {
            "turn_us": round(self.turn_s * 1e6, 1),
            "events_of_a_turn_us": round(self.event_s * 1e6, 1),
            "writing_share": round(self.writing, 3),
            "events": self.events,
            **times,
            "reported_s": round(self.reported_s, 3),
            "page_mb": round(self.page_bytes / 1e6, 2),
        }


def measure(events: int, tell: Callable[[str], None]) -> HistoryCosts:
    """Measure both on a server of its own."""
    with EmbeddedServer() as server:
        settings = Settings(redis_url=SecretStr(server.url), pool="bench", job="bench", run="bench")
        turn_s, event_s = _writing(settings, tell)
        told = day(events)
        tell("writing a day's events")
        _write(settings, told)
        tell("reading them")
        return HistoryCosts(len(told), turn_s, event_s, *_reading(settings))


# ---------------------------------------------------------------- writing


def _writing(settings: Settings, tell: Callable[[str], None]) -> tuple[float, float]:
    """Seconds of a client's turn, and how much of them goes into events."""
    with silent_scripts() as overlay:
        stores = {"with": Store(settings), "without": Store(settings, overlay=overlay)}
        stores["with"].run(Declare(SLICE, {}))
        slice_ = Slice(SLICE, settings=settings)
        work = {name: _pairs(store, name) for name, store in stores.items()}

        def turn() -> None:
            slice_.acquire().yield_()

        work["turn"] = turn
        try:
            times: dict[str, list[float]] = {name: [] for name in work}
            for number in range(ROUNDS):
                tell(f"round {number + 1} of {ROUNDS}")
                for name, one in work.items():
                    times[name].append(_seconds(one))
        finally:
            close_all()
            for store in stores.values():
                store.close()
    whole, with_, without = (percentile(times[name], 0.5) for name in ("turn", "with", "without"))
    return whole, max(with_ - without, 0.0)


@contextmanager
def silent_scripts() -> Generator[Path]:
    """A folder with the include that writes events, which writes none."""
    text = (lua_root() / "include/tell.lua").read_text(encoding="utf-8")
    silent, found = EVENT.subn("local function event() end", text)
    assert found == 1, "the function that writes events has another form"
    with scratch(temporary(), "silent") as folder:
        (folder / "tell.lua").write_text(silent, encoding="utf-8")
        yield folder


def _pairs(store: Store, run: str) -> Callable[[], None]:
    process, numbers = str(ProcessIdentity.of()), itertools.count(1)

    def pair() -> None:
        k = next(numbers)
        held = store.run(Acquire(run, run, "main", k, "0", 1, (SLICE,), process, 60_000, 15_000))
        assert held.outcome == "HELD", held
        store.run(Yield(run, "main", k, "0"))

    return pair


def _seconds(work: Callable[[], None]) -> float:
    done, begun = 0, time.perf_counter()
    while time.perf_counter() < begun + ROUND_S:
        work()
        done += 1
    return (time.perf_counter() - begun) / done


# ---------------------------------------------------------------- reading


def _write(settings: StoreSettings, told: list[tuple[int, dict[str, str]]]) -> None:
    link = RawLink(opened(Endpoint(settings, "bench"), settings.store_timeout)[0], settings.store_timeout)
    key = Keys(settings.pool).events
    link.send(pack(("DEL", key))[0])
    link.receive()
    for first in range(0, len(told), PIPELINE):
        calls = [
            pack(("XADD", key, f"{at}-{number}", *itertools.chain(*fields.items())))[0]
            for number, (at, fields) in enumerate(told[first : first + PIPELINE], first)
        ]
        link.send(b"".join(calls))
        for _ in calls:
            link.receive()
    link.close()


def _reading(settings: StoreSettings) -> tuple[float, float, float, float, int]:
    clock = time.perf_counter
    marks = [clock()]

    def timed(value: Any) -> Any:
        marks.append(clock())
        return value

    with in_bulk():
        with EventReader(settings, since_ms=BEGIN_MS - 1) as reader:
            events = timed(list(reader.read_all()))
        history = timed(History(events))
        figures = timed(report(history))
    text = timed(page(drawing(history, figures, settings.pool)))
    read, fold, reported, drawn = (after - before for before, after in itertools.pairwise(marks))
    return read, fold, reported, drawn, len(text)
