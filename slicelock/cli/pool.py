"""What commands ask of a pool, and what its answers mean to an operator."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from slicelock.cli.failures import Refused
from slicelock.picture import SENSELESS_REMEDY, Picture
from slicelock.settings import StoreSettings
from slicelock.store.sync import Store
from slicelock.wire import Status


@contextmanager
def connected(pool: str | None) -> Generator[tuple[Store, StoreSettings]]:
    """A connection to the coordinator for the length of a command."""
    settings = StoreSettings.load(pool=pool)
    store = Store(settings)
    try:
        yield store, settings
    finally:
        store.close()


def look(store: Store, settings: StoreSettings, name: str = "") -> Picture:
    """The pool's picture, or one slice's; Refused when there is none of that name."""
    reply = store.run(Status(slice=name))
    if reply.outcome == "NO_SUCH_SLICE":
        raise unknown(name, settings)
    seen = Picture.of(settings.pool, reply.picture)
    if why := seen.senseless.get(f"slice {name}"):
        raise refused(f"The record of slice {name} makes no sense", why, SENSELESS_REMEDY)
    return seen


def unknown(name: str, settings: StoreSettings) -> Refused:
    """There is no such slice in this pool."""
    return Refused(
        f"There is no slice {name!r} in pool {settings.pool!r}.",
        advice="`slicelock slice list` shows those that there are.",
        slice=name,
    )


def refused(what: str, reason: str, advice: str) -> Refused:
    """The pool did not do `what`, and why."""
    return Refused(f"{what}: {reason}.", advice=advice)
