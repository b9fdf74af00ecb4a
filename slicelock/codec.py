"""How a call becomes ARGV, and an answer's array becomes facts.

An argument's annotation decides its encoding: `str` as it is, `int` in decimal, `bool` as 1 or 0, `Words`
separated by spaces, anything else as JSON. A reply is a flat array: the outcome, then names and values; the
annotation decodes the value. Numbers travel as decimal strings, since a fence has more digits than Lua
prints by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Generic, cast, get_type_hints

from typing_extensions import TypeVar  # its `default` keeps a bare `ScriptCall` usable

from slicelock.errors import SchemaMismatch, StoreError

Words = tuple[str, ...]
Fences = Mapping[str, int]
Json = Any

R = TypeVar("R", bound="Reply", default=Any)


# ---------------------------------------------------------------- encoding


_ENCODERS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda value: "1" if value else "0",
    int: str,
    tuple: " ".join,
}


_write_json = json.JSONEncoder(separators=(",", ":")).encode


def _encode(value: object) -> str:
    return _ENCODERS.get(type(value), _write_json)(value)


@cache
def _arguments(kind: type[ScriptCall]) -> Callable[[ScriptCall], tuple[object, ...]]:
    names = [f.name for f in fields(kind)]
    return cast(Callable[[ScriptCall], tuple[object, ...]], attrgetter(*names))


Raw = bytes | str | int  # an item of a reply, as a server or a stand-in for one sends it


def _text(raw: Raw) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


_read_json = json.JSONDecoder().raw_decode


def _json(raw: Raw) -> Any:
    return _read_json(_text(raw))[0]


_DECODERS: dict[object, Callable[[Raw], object]] = {
    str: _text,
    int: int,
    bool: lambda raw: _text(raw) == "1",
    Words: lambda raw: tuple(_text(raw).split()),
    Fences: lambda raw: {name: int(fence) for name, fence in _json(raw).items()},
    Json: _json,
}


@cache
def _decoders(kind: type[Reply]) -> dict[Raw, tuple[str, Callable[[Raw], object]]]:
    """By a field's name as it comes, bytes or text: the name, and what reads its value."""
    hints = get_type_hints(kind).items()
    known = {name: (name, _DECODERS[hint]) for name, hint in hints if hint in _DECODERS}
    return {**known, **{name.encode(): decoder for name, decoder in known.items()}}


def _other_schema(found: str, expected: str) -> SchemaMismatch:
    """What is to be upgraded: whatever is older."""
    newer = found.isdigit() and int(found) > int(expected)
    return SchemaMismatch(
        f"The pool's data has schema {found}, this slicelock has {expected}.",
        advice="Upgrade this one: others here have a newer version already."
        if newer
        else "Upgrade those that use the pool first, agents before jobs, and begin with an empty pool; "
        "or use the older version here.",
    )


NO_ANSWER = (ValueError, TypeError, LookupError, AttributeError)
"""What reading an answer raises that is none."""


def senseless(call: str, why: object) -> StoreError:
    """What was called gave an answer that is none of it."""
    return StoreError(
        f"The answer to a call of {call} makes no sense: {why}.",
        advice="Check that SLICELOCK_REDIS_URL leads to Redis itself, with nothing in between that changes "
        "answers.",
    )


# ---------------------------------------------------------------- bases


@dataclass(frozen=True, slots=True)
class Reply:
    """A script's answer: what was achieved, and the facts that go with it."""

    outcome: str
    reason: str = ""
    schema: str = ""

    @classmethod
    def decode(cls: type[R], raw: Sequence[Raw]) -> R:
        """Read a reply array; unknown names are ignored, so that an older client understands a newer
        script."""
        outcome = _text(raw[0])
        if outcome == "SCHEMA":
            raise _other_schema(_text(raw[2]), _text(raw[4]))
        decoders, facts = _decoders(cls), dict[str, Any]()
        for at in range(1, len(raw), 2):
            if known := decoders.get(raw[at]):
                name, read = known
                facts[name] = read(raw[at + 1])
        return cls(outcome, **facts)


@dataclass(frozen=True, slots=True)
class ScriptCall(Generic[R]):
    """One call of one script, answered by an `R`. Subclasses declare ARGV by their fields, in order."""

    script: ClassVar[str]
    outcomes: ClassVar[frozenset[str]]
    reply: ClassVar[type[Reply]]

    def argv(self) -> list[str]:
        """The script's ARGV."""
        return [_encode(value) for value in _arguments(type(self))(self)]

    def decode(self, raw: Sequence[Raw]) -> R:
        """Read the script's answer to this call; StoreError when it is none."""
        try:
            reply = cast(R, self.reply.decode(raw))
        except NO_ANSWER as failure:
            raise senseless(self.script, failure) from None
        if reply.outcome not in self.outcomes:
            raise senseless(self.script, f"{reply.outcome!r} is no outcome of it")
        return reply

    def needs_replicas(self, reply: R) -> bool:
        """Whether nobody may rely on this answer before replicas have what it says."""
        return False
