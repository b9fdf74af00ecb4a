"""A device's record: one JSON line for each thing that happened on it, appended by whoever did it.

A line is written by a single append, so lines of several processes never mix. Times are ns of the system's
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from slicelock.estimate import covered
from slicelock.sim.files import explained


@dataclass(frozen=True, slots=True)
class Use:
    """An admitted use. `end_ns` is None while it goes on, and for ever if its process was killed in it."""

    run: str
    fence: int
    pid: int
    start_ns: int
    end_ns: int | None


@dataclass(frozen=True, slots=True)
class Stray:
    """A touch outside a turn that the device noticed, and why it counts as one."""

    run: str
    fence: int
    pid: int
    start_ns: int
    end_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The agent let a run in under a fence."""

    run: str
    fence: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class Move:
    """The agent moved a run's bytes: `what` is save or restore."""

    what: str
    run: str
    bytes: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Record:
    """What a record says, in the order of the lines. `damaged` counts lines that a full disk or a kill cut
    short."""

    uses: tuple[Use, ...] = ()
    strays: tuple[Stray, ...] = ()
    admissions: tuple[Admission, ...] = ()
    moves: tuple[Move, ...] = ()
    damaged: int = 0

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a record; a missing file is an empty one. A line that is still being written is left out."""
        return RecordReader(path).read()

    def duty(self, start_ns: int, end_ns: int, run: str = "") -> float:
        """The share of the time from `start_ns` to `end_ns` in which the device was used (by `run`), from 0
        to 1."""
        chosen = (use for use in self.uses if not run or use.run == run)
        spans = ((max(use.start_ns, start_ns), min(use.end_ns or 0, end_ns)) for use in chosen)
        return covered(spans) / max(1, end_ns - start_ns)

    def violations(self) -> list[str]:
        """What must never happen: uses of two turns at once, fences that do not rise, and strays."""
        ordered = sorted(self.uses, key=lambda use: use.start_ns)
        return [
            *(f"{_told(b)} began during {_told(a)}" for a, b in _overlaps(ordered)),
            *(f"{_told(b)} came after {_told(a)}" for a, b in pairwise(ordered) if b.fence < a.fence),
            *(f"{_told(b)} came after {_told(a)}" for a, b in pairwise(self.admissions) if not _rises(a, b)),
            *(f"stray: {stray.run} under fence {stray.fence}: {stray.why}" for stray in self.strays),
        ]


def _told(what: Use | Admission) -> str:
    return f"{type(what).__name__.lower()} of {what.run} under fence {what.fence}"


def _rises(a: Admission, b: Admission) -> bool:
    # An agent that comes back may admit the same turn once more.
    return b.fence > a.fence or (b.fence, b.run) == (a.fence, a.run)


def _overlaps(ordered: Sequence[Use]) -> Iterable[tuple[Use, Use]]:
    """Pairs of uses of different turns at the same time. Members of one turn may use the device together."""
    latest: Use | None = None
    for use in ordered:
        if (
            latest
            and (use.run, use.fence) != (latest.run, latest.fence)
            and use.start_ns < (latest.end_ns or 0)
        ):
            yield latest, use
        if latest is None or (use.end_ns or use.start_ns) >= (latest.end_ns or 0):
            latest = use


# ---------------------------------------------------------------- reading and writing


@dataclass(slots=True)
class RecordReader:
    """Reads a record as it grows: each `read` looks only at what is new."""

    path: Path
    _offset: int = 0
    _uses: dict[tuple[int, int], Use] = field(default_factory=dict[tuple[int, int], Use])
    _others: dict[type, list[Any]] = field(default_factory=dict[type, list[Any]])
    _damaged: int = 0

    def read(self) -> Record:
        """Everything up to the last whole line."""
        for line in self._new_lines():
            self._take(line)
        strays, admissions, moves = (tuple(self._others.get(kind, ())) for kind in (Stray, Admission, Move))
        return Record(tuple(self._uses.values()), strays, admissions, moves, self._damaged)

    @classmethod
    def from_now(cls, path: Path) -> RecordReader:
        """A reader that leaves out what is there already."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def forget(self, before_ns: int) -> None:
        """Keep only uses that go on or have ended since."""
        self._uses = {at: use for at, use in self._uses.items() if (use.end_ns or before_ns) >= before_ns}
        self._others.clear()

    def _new_lines(self) -> list[bytes]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()

    def _take(self, line: bytes) -> None:
        try:
            item = _parse(json.loads(line))
        except (ValueError, KeyError, TypeError):
            self._damaged += 1
            return
        if isinstance(item, Use):
            self._uses[item.pid, item.start_ns] = item
            return
        if isinstance(item, Stray):  # a use that began well and outlived its turn
            self._uses.pop((item.pid, item.start_ns), None)
        self._others.setdefault(type(item), []).append(item)


def _parse(facts: dict[str, Any]) -> Use | Stray | Admission | Move:
    what = facts.pop("what")
    match what:
        case "begin":
            return Use(**facts, end_ns=None)
        case "use":
            return Use(**facts)
        case "stray":
            return Stray(**facts)
        case "admit":
            return Admission(**facts)
        case _:
            return Move(what, **facts)


_encode = json.JSONEncoder(separators=(",", ":")).encode


def append(path: Path, what: str, facts: Mapping[str, object]) -> None:
    """Add one line; SimError when it cannot be written."""
    line = _encode({"what": what, **facts}).encode() + b"\n"
    try:
        _write(path, line)
    except OSError:
        with explained(f"write the record {path}"):
            raise


def _write(path: Path, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
