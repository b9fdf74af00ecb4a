"""`register`: hooks with which this process moves its own device state when an agent asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

from slicelock.client.ground import ground_of
from slicelock.companion import Hook, Offer
from slicelock.errors import ConfigurationError
from slicelock.keys import check_name
from slicelock.loops import running_loop
from slicelock.settings import Settings

H = TypeVar("H", bound=Hook)


def register(hook: H, *, slices: str | Sequence[str] = (), settings: Settings | None = None) -> H:
    """Offer a hook to the agents; returns it.

    `slices`: those that it serves, one or several; by default all that this process takes turns on. Coroutine
    methods run on the event loop that is running now, plain ones on a thread of slicelock's. The same object
    again stays one hook: it serves the slices of both, on the newer loop.

    Raises ConfigurationError when the object has no `offload` and `reload`, or is a class. With `slices`, the
    process is made known at once (StoreError when Redis is not reached), else with its first turn. In the
    modes `off` and `observe` nothing happens.
    """
    if isinstance(hook, type):
        name = cast(type, hook).__name__
        raise ConfigurationError(
            f"{name} cannot be registered: it is a class.", advice=f"Register an object of it: {name}(…)."
        )
    missing = [name for name in ("offload", "reload") if not callable(getattr(hook, name, None))]
    if missing:
        raise ConfigurationError(
            f"{type(hook).__name__} cannot be registered: it has no method {' and no '.join(missing)}.",
            advice="A hook is any object with offload() and reload().",
        )
    given = (slices,) if isinstance(slices, str) else slices
    names = tuple(check_name("slice", name) for name in given)
    party = ground_of(settings or Settings.load()).party
    if party is None:
        return hook
    party.offer(Offer(hook, names, running_loop()))
    return hook
