"""What commands about the past ask of a pool: its whole history, and how many devices each slice has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slicelock.cli.pool import connected, look
from slicelock.cli.since import since_ms
from slicelock.history import History
from slicelock.history.bulk import in_bulk
from slicelock.history.report import Report, report
from slicelock.picture import Picture
from slicelock.store import EventReader


@dataclass(frozen=True, slots=True)
class Past:
    """A pool's history up to now."""

    pool: str
    history: History
    since_ms: int
    now_ms: int
    devices: Mapping[str, int]

    def report(self) -> Report:
        """The figures since then."""
        with in_bulk():
            return report(self.history, since_ms=self.since_ms, until_ms=self.now_ms, devices=self.devices)


def past(pool: str | None, since: str | None) -> Past:
    """Read everything that the stream still has: what began before `since` may go on after it."""
    with connected(pool) as (store, settings), EventReader(settings, since_ms=0) as reader, in_bulk():
        now = reader.now_ms()
        history = History(reader.read_all())
        devices = sizes(look(store, settings))
    begin = since_ms(since, now) if since else 0
    return Past(settings.pool, history, begin, max(now, history.now_ms), devices)


def sizes(picture: Picture) -> dict[str, int]:
    """How many devices each slice has. Slices without agents count only where no slice has any: as one."""
    counted = {one.name: sum(len(those) for those in one.nodes.values()) for one in picture.slices}
    return counted if any(counted.values()) else dict.fromkeys(counted, 1)
