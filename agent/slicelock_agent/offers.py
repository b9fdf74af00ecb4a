"""The hooks that processes offer, and the commands to them with their answers, as they stand in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from slicelock.servers import Plan
from slicelock_agent.reconcile import whole_number

OFFLOAD, RELOAD = "offload", "reload"


@dataclass(frozen=True, slots=True)
class OfferedHook:
    """What a process offers for some slices: `own` moves its state by itself and gets no commands; with a
    `server` neither does it, since that is spoken to itself. `overlaps`: it can change places with another
    run block by block.
    """

    name: str
    slices: tuple[str, ...] = ()
    own: bool = False
    residue: int = 0
    server: Plan | None = None
    overlaps: bool = False

    @property
    def commanded(self) -> bool:
        return not self.own and self.server is None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> OfferedHook:
        residue, server = raw.get("residue") or 0, raw.get("server")
        return cls(
            name=str(raw.get("name", "")),
            slices=_names(raw.get("slices")),
            own=raw.get("self") is True,
            residue=max(0, whole_number(residue)),
            server=Plan.of(cast(Mapping[str, Any], server)) if isinstance(server, dict) else None,
            overlaps=raw.get("overlaps") is True,
        )


@dataclass(frozen=True, slots=True)
class Word:
    """What stands in Redis for a process's hooks: a command (no `outcome` yet) or the answer to one."""

    n: int
    what: str
    outcome: str = ""
    reason: str = ""
    bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.outcome == "done"

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Word:
        return cls(
            n=whole_number(raw["n"]),
            what=str(raw["what"]),
            outcome=str(raw.get("outcome") or ""),
            reason=str(raw.get("reason") or ""),
            bytes=whole_number(raw.get("bytes") or 0),
        )


def offers_in(entry: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[OfferedHook, ...]]:
    """A process's slices, and the hooks that it offers for them or for some slices of their own.

    ConfigurationError, ValueError, TypeError, KeyError or AttributeError say what is wrong with it.
    """
    hooks = entry.get("hooks")
    listed = cast(list[object], hooks) if isinstance(hooks, list) else []
    described = [cast(Mapping[str, Any], hook) for hook in listed if isinstance(hook, dict)]
    return _names(entry.get("slices")), tuple(OfferedHook.of(hook) for hook in described)


def _names(raw: object) -> tuple[str, ...]:
    return tuple(str(name) for name in cast(list[object], raw)) if isinstance(raw, list) else ()
