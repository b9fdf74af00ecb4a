"""What turns stand on: a party of a pool, an observer, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from slicelock.client.observe import Observer, observer
from slicelock.companion import Party, party_of
from slicelock.logs import set_up
from slicelock.settings import Mode, Settings


@dataclass(frozen=True, slots=True)
class Ground:
    """What a turn stands on: a party, in mode `observe` an observer, in mode `off` neither."""

    party: Party | None = None
    observer: Observer | None = None


def ground_of(settings: Settings) -> Ground:
    """What turns stand on in this mode; ConfigurationError when a setting is missing."""
    if settings.log_level:
        set_up("slicelock", settings.log_level, settings.log_format, "slicelock")
    if settings.mode is Mode.OFF:
        return Ground()
    if settings.mode is Mode.OBSERVE:
        return Ground(observer=observer(settings.job or "this job"))
    return Ground(party_of(settings))
