"""What a flow of the protocol can ask of whoever drives it.

A flow is a generator: it yields one of these steps and receives the answer; `Store.drive` or
`AsyncStore.drive` does the I/O. So the logic is written once for sync and async code, and a test drives it by
hand. (The steps of a switch are another matter: `slicelock_agent.reconcile.Step`.)
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from slicelock.codec import ScriptCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """Run one script; the answer is its `Reply`. StoreError is thrown into the flow."""

    call: ScriptCall


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until a message for this run arrives or the time has passed; the answer says whether one
    arrived."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """The answer is the monotonic clock, in seconds."""


Step = Call | Wait | Now
Flow = Generator[Step, Any, T]
