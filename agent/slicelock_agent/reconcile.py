"""What to do next on one slice: what Redis wants, compared with what is here. Pure: no I/O, no clock, no
side effects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from slicelock.settings import WAYS
from slicelock.states import RunState, SliceState

ON_DEVICE = frozenset({RunState.LOADED, RunState.POISONED})
OFF_DEVICE = frozenset({RunState.SAVED, RunState.LOST})
UNFINISHED = frozenset({RunState.SNAPSHOTTING, RunState.RESTORING, RunState.UNKNOWN})
DAY_OF_FENCES = 86_400_000 * 1024
"""A fence is at least Redis' clock in ms times 1024; one that is a day ahead comes from a broken clock or a
broken writer. But what follows one that was admitted, while this node's clock was ahead too, is as good.
"""


@dataclass(frozen=True, slots=True)
class Stay:
    """One run's state on this node's devices of a slice.

    `hooked`: its hooks were told to offload and have not yet confirmed a reload. `image` names what was
    saved from outside.
    """

    run: str
    state: RunState
    hooked: bool = False
    image: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """The turn that was let onto the devices last."""

    run: str
    lane: str
    k: int
    fence: int


@dataclass(frozen=True, slots=True)
class Here:
    """What is here: the journal's page of the slice, and what is known beside it.

    `dead`: runs whose processes have all ended. `strange`: the devices hold something of no run that should
    be on them. `gone`: runs left out of `stays`, since there is nothing to move of them.
    """

    top: int = 0
    admitted: Admitted | None = None
    stays: Mapping[str, Stay] = field(default_factory=dict[str, Stay])
    dead: frozenset[str] = frozenset()
    strange: bool = False
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What Redis wants of a slice. Only a slice that is `switching` and not `settling` asks for anything."""

    state: str = SliceState.FREE
    fence: int = 0
    run: str = ""
    lane: str = ""
    k: int = 0
    settling: bool = False
    known: bool = True
    ways: tuple[str, ...] = ()
    min_free: int | None = None
    """Bytes that must be free on each device before a run's first turn; None: as the agent is set."""
    zero_residue: bool | None = None
    """Whether what hooks leave on the devices is saved from outside as well; None: as the agent is set."""

    @property
    def asks(self) -> bool:
        return self.state == SliceState.SWITCHING and not self.settling and self.known

    @property
    def turn(self) -> Admitted:
        return Admitted(self.run, self.lane, self.k, self.fence)

    @classmethod
    def of(cls, raw: object) -> Wanted:
        """Read one entry of a beat's reply; ValueError or TypeError names what is wrong with it."""
        if not isinstance(raw, Mapping):
            raise TypeError(f"{raw!r:.80} is no description of a slice")
        facts = cast(Mapping[str, Any], raw)
        settings = settings_of(facts.get("settings"))
        free, zero = settings.get("min_free"), settings.get("zero_residue")
        return cls(
            state=str(facts.get("state", "")),
            fence=whole_number(facts.get("fence", 0)),
            run=str(facts.get("run", "")),
            lane=str(facts.get("lane", "")),
            k=whole_number(facts.get("k") or 0),
            settling=flag(facts.get("settling")),
            known=flag(facts.get("known", True)),
            ways=ways_of(settings.get("fallback")),
            min_free=None if free is None else whole_number(free),
            zero_residue=None if zero is None else flag(zero),
        )


def whole_number(value: object) -> int:
    """A number that Lua wrote, as text or as a JSON number; ValueError when it is not whole."""
    match value:
        case bool():
            raise ValueError(f"{value!r} is no number")
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str():
            return int(value or "0")
        case _:
            raise ValueError(f"{value!r:.80} is no whole number")


def flag(value: object) -> bool:
    """A truth value that Lua wrote: true, 1 or "1"."""
    return value is True or value in (1, "1")


def settings_of(raw: object) -> Mapping[str, Any]:
    """A slice's own settings, from what was declared (JSON); empty when they cannot be read."""
    try:
        facts: object = json.loads(raw) if isinstance(raw, str) else raw
    except ValueError:
        return {}
    return cast(Mapping[str, Any], facts) if isinstance(facts, Mapping) else {}


def ways_of(raw: object) -> tuple[str, ...]:
    """A chain of ways to evict; empty when there is none, or it names one that does not exist."""
    parts = (
        raw.split(",") if isinstance(raw, str) else cast(list[object], raw) if isinstance(raw, list) else []
    )
    ways = tuple(str(part).strip() for part in parts)
    return ways if set(ways) <= set(WAYS) else ()


class Step(StrEnum):
    """What can be done next."""

    REST = "rest"
    FIND_OUT = "find out"
    """A step was begun and its end is not known: observe, then finish it or undo it."""
    DROP = "drop"
    """Forget what a dead run left, on the devices or saved."""
    EVICT = "evict"
    WIPE = "wipe"
    """Clear what no run owns: written outside any turn."""
    RESTORE = "restore"
    RELOAD = "reload"
    """The run's state is on the devices as far as the agent moves it; its hooks must reload theirs."""
    ADMIT = "admit"
    REFUSE = "refuse"
    """The switch cannot be done for this request; `reason` says why."""
    BLOCK = "block"
    """Nobody can be let in here now, which is no request's fault; `reason` says why."""


@dataclass(frozen=True, slots=True)
class Action:
    """The next step, and the run it is about."""

    step: Step
    run: str = ""
    reason: str = ""


REST = Action(Step.REST)


def next_action(wanted: Wanted, here: Here, now_ms: int) -> Action:
    """What to do next. `now_ms` is this node's clock, only to tell a fence of the far future."""
    for stay in here.stays.values():
        if stay.state in UNFINISHED:
            return Action(Step.FIND_OUT, stay.run)
    dead = [run for run in here.stays if run in here.dead]
    if dead and not wanted.settling:
        return Action(Step.DROP, dead[0])
    if not wanted.asks or wanted.run in here.dead:
        return REST
    if wanted.fence > max(now_ms * 1024, here.top) + DAY_OF_FENCES:
        return Action(Step.BLOCK, reason=far_ahead(wanted.fence))
    if reason := refusal(wanted, here):
        return Action(Step.REFUSE, wanted.run, reason)
    return _switch(wanted.run, here)


def _switch(run: str, here: Here) -> Action:
    for stay in here.stays.values():
        if stay.run != run and stay.state in ON_DEVICE:
            return Action(Step.EVICT, stay.run)
    return _bring(run, here)


def far_ahead(fence: int) -> str:
    """Why a fence of the far future is not admitted, and the remedy."""
    return (
        f"fence {fence} lies more than a day ahead of this node's clock: correct that clock, or Redis' if "
        "that is ahead; it is tried again by itself"
    )


def refusal(wanted: Wanted, here: Here) -> str:
    """Why this fence is not to be admitted for this request; empty when it is."""
    if wanted.fence < here.top:
        return f"fence {wanted.fence} is below {here.top}, the highest that this node has admitted"
    if wanted.fence == here.top and here.admitted not in (None, wanted.turn):
        return f"fence {wanted.fence} was admitted for another turn"
    return ""


def _bring(run: str, here: Here) -> Action:
    stay = here.stays.get(run)
    if stay is not None and stay.state is RunState.LOADED:
        return Action(Step.RELOAD if stay.hooked else Step.ADMIT, run)
    if here.strange:
        return Action(Step.WIPE)
    if stay is None:
        return Action(Step.ADMIT, run)
    if stay.state is RunState.SAVED:
        return Action(Step.RESTORE, run)
    return Action(Step.REFUSE, run, f"the run's state here is {stay.state}")
