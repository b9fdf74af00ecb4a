"""Watches a pool for Prometheus: a question for each scrape, and the stream of events in between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from slicelock.errors import SlicelockError, StoreTimeout, StoreUnavailable
from slicelock.events import Event
from slicelock.metrics.families import Capped, Families, Family, Kind
from slicelock.metrics.leases import Leases
from slicelock.metrics.pool import PoolCollector
from slicelock.metrics.serving import MetricsServer
from slicelock.metrics.stream import MOST, StreamMetrics
from slicelock.picture import Picture
from slicelock.settings import StoreSettings
from slicelock.store import EventReader, PrimaryWatch
from slicelock.store.sync import Store
from slicelock.wire import Status

log = logging.getLogger("slicelock")

LOOK_S, RETRY_S = 1.0, 1.0
OWN = (
    Family("slicelock_exporter_outages_total", Kind.COUNTER, "How often the exporter lost Redis.", ("pool",)),
    Family(
        "slicelock_lease_renewals_late_total",
        Kind.COUNTER,
        "Turns seen with less than half of their lease left: their processes renew late, or not at all.",
        ("pool", "slice"),
    ),
)


class Exporter:
    """Serves a pool's metrics at a host and port until `close`. ConfigurationError (CannotListen for the
    address) and SchemaMismatch when that is impossible; a Redis that is away is told (`tell`) and waited for.

    While Redis is away `slicelock_up` is 0, and /readyz says why; what happened meanwhile is counted after.
    """

    def __init__(
        self, settings: StoreSettings, address: tuple[str, int], tell: Callable[[str], None]
    ) -> None:
        self._settings, self._lock, self._tell = settings, threading.Lock(), tell
        self._store, self._trouble = Store(settings, name="exporter"), ""
        self._events = EventReader(settings, name="exporter-events")
        self._watch = PrimaryWatch(settings, lambda: None)  # what it cuts is opened again without being told
        self._leases, self._over, self._odd = Leases(), threading.Event(), False
        self._thread = threading.Thread(target=self._follow, name="slicelock-exporter", daemon=True)
        registry, jobs = CollectorRegistry(), Capped()
        self._slices = Capped(MOST["slice"])
        self._own = Families(OWN, registry, {"pool": settings.pool})
        self._own.at("slicelock_exporter_outages_total").inc(0)
        self._stream = StreamMetrics(settings.pool, registry, jobs)
        registry.register(PoolCollector(settings.pool, self._look, jobs))
        try:
            self._check()
            self.server = MetricsServer(address, registry, self._healthy, lambda: self._trouble)
        except BaseException:
            self._store.close()
            self._events.close()
            raise
        self._watch.start()
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and close all connections."""
        self._over.set()
        self.server.close()
        self._thread.join()
        self._watch.close()
        self._store.close()

    def _check(self) -> None:
        """Find out at once what would be wrong for ever."""
        try:
            self._store.run(Status(queue_limit=1))
            self._events.read()  # from here on everything is counted
        except (StoreUnavailable, StoreTimeout) as failure:
            self._tell(f"slicelock: {failure} Waiting for it.")
            self._trouble = str(failure)

    def _healthy(self) -> str:
        return "" if self._thread.is_alive() else "the stream of events is not followed any more"

    def _look(self) -> Picture:
        with self._lock:
            seen = Picture.of(self._settings.pool, self._store.run(Status(queue_limit=1)).picture)
            self._judge_leases(seen)
        return seen

    def _judge_leases(self, seen: Picture) -> None:
        late = self._leases.late(seen)
        for one in seen.slices:
            name = "slicelock_lease_renewals_late_total"
            self._own.at(name, slice=self._slices(one.name)).inc(one.name in late)

    def _follow(self) -> None:
        with self._events as events:
            while not self._over.is_set():
                try:
                    batch = events.read(LOOK_S)
                except SlicelockError as failure:
                    self._note(str(failure))
                    self._over.wait(RETRY_S)
                else:
                    self._trouble = ""
                    for event in batch:
                        self._take(event)

    def _take(self, event: Event) -> None:
        """Count an event. Whoever may write to the stream may write what nobody has thought of."""
        try:
            self._stream.take(event)
        except Exception:
            if not self._odd:
                log.exception("event %s cannot be counted; others like it are passed over silently", event.id)
            self._odd = True

    def _note(self, trouble: str) -> None:
        if not self._trouble:
            self._own.at("slicelock_exporter_outages_total").inc()
            self._tell(f"slicelock: {trouble} Waiting for it.")
        self._trouble = trouble
