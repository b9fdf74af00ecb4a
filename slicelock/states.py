"""Where a thing is in its life (states) and how a life or a call ended (outcomes)."""

from __future__ import annotations

from enum import StrEnum


class SliceState(StrEnum):
    """A slice's place in its cycle; `settling` and `blocked` are conditions beside it."""

    FREE = "free"
    SWITCHING = "switching"
    HELD = "held"


class RequestState(StrEnum):
    """A request's place in its life."""

    GATHERING = "gathering"
    QUEUED = "queued"
    SWITCHING = "switching"
    HELD = "held"
    ENDED = "ended"


class RequestOutcome(StrEnum):
    """How a request ended."""

    YIELDED = "yielded"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REVOKED = "revoked"
    FAILED = "failed"
    HOLDER_DIED = "holder_died"
    SUPERSEDED = "superseded"


class RunState(StrEnum):
    """Where a run's device state is on one node."""

    ABSENT = "absent"
    LOADED = "loaded"
    SNAPSHOTTING = "snapshotting"
    SAVED = "saved"
    RESTORING = "restoring"
    LOST = "lost"
    POISONED = "poisoned"
    UNKNOWN = "unknown"


# An agent holds its runs to theirs at each step (`advance`); tests hold the requests in Redis to theirs, and
# the docs' charts to all.
TRANSITIONS: dict[type[StrEnum], dict[StrEnum, frozenset[StrEnum]]] = {
    SliceState: {
        SliceState.FREE: frozenset({SliceState.SWITCHING, SliceState.HELD}),
        SliceState.SWITCHING: frozenset({SliceState.HELD, SliceState.FREE}),
        SliceState.HELD: frozenset({SliceState.FREE}),
    },
    RequestState: {
        RequestState.GATHERING: frozenset({RequestState.QUEUED, RequestState.ENDED}),
        RequestState.QUEUED: frozenset({RequestState.SWITCHING, RequestState.HELD, RequestState.ENDED}),
        RequestState.SWITCHING: frozenset({RequestState.HELD, RequestState.QUEUED, RequestState.ENDED}),
        RequestState.HELD: frozenset({RequestState.ENDED}),
        RequestState.ENDED: frozenset(),
    },
    RunState: {
        RunState.ABSENT: frozenset({RunState.LOADED, RunState.UNKNOWN}),
        RunState.LOADED: frozenset({RunState.SNAPSHOTTING, RunState.LOST, RunState.UNKNOWN}),
        RunState.SNAPSHOTTING: frozenset(
            {RunState.SAVED, RunState.LOADED, RunState.LOST, RunState.POISONED, RunState.UNKNOWN}
        ),
        RunState.SAVED: frozenset({RunState.RESTORING, RunState.LOST}),
        RunState.RESTORING: frozenset(
            {RunState.LOADED, RunState.SAVED, RunState.LOST, RunState.POISONED, RunState.UNKNOWN}
        ),
        RunState.UNKNOWN: frozenset({RunState.LOADED, RunState.SAVED, RunState.LOST, RunState.POISONED}),
        RunState.POISONED: frozenset({RunState.LOST}),
        RunState.LOST: frozenset(),
    },
}


def advance(old: StrEnum, new: StrEnum) -> StrEnum:
    """Return `new` if the state chart allows the step from `old`; raise ValueError otherwise."""
    if new is not old and new not in TRANSITIONS[type(old)][old]:
        raise ValueError(f"{type(old).__name__} cannot go from {old} to {new}")
    return new
