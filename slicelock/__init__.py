"""Several reinforcement-learning jobs take turns on the same accelerators, coordinated by Redis alone.

    import slicelock

    trainers = slicelock.Slice("trainers")

    with trainers.turn(phase="train") as turn:
        loss = step(batch)

The names below are loaded when they are first used, so that the import itself is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slicelock import errors, hooks, testing
    from slicelock.client import AsyncSlice, AsyncTurn, Slice, Turn, away, current_turn, register
    from slicelock.errors import (
        AcquireTimeout,
        Busy,
        ConfigurationError,
        LeaseLost,
        NotGranted,
        SlicelockError,
        StoreError,
        TurnError,
    )

__version__ = "0.1.0"

_HOMES = {
    "slicelock.client": ("AsyncSlice", "AsyncTurn", "Slice", "Turn", "away", "current_turn", "register"),
    "slicelock.errors": (
        "AcquireTimeout",
        "Busy",
        "ConfigurationError",
        "LeaseLost",
        "NotGranted",
        "SlicelockError",
        "StoreError",
        "TurnError",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("errors", "hooks", "testing")

__all__ = [
    "AcquireTimeout",
    "AsyncSlice",
    "AsyncTurn",
    "Busy",
    "ConfigurationError",
    "LeaseLost",
    "NotGranted",
    "Slice",
    "SlicelockError",
    "StoreError",
    "Turn",
    "TurnError",
    "away",
    "current_turn",
    "errors",
    "hooks",
    "register",
    "testing",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"slicelock.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'slicelock' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
