"""How long each step of a switch takes and what it moves, noted around the backends. For people only."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from slicelock_agent.backends.base import Accelerator, Backend, Report, Subject

R = TypeVar("R")
NOTHING_S = 0.0005
"""A step that moves nothing and takes less is not worth telling."""


@dataclass(slots=True)
class Steps:
    """The steps of the present switch; repetitions of one are counted together."""

    _done: dict[tuple[str, str, str], list[float]] = field(
        default_factory=dict[tuple[str, str, str], list[float]]
    )

    def note(self, step: str, run: str, way: str, moved: int, seconds: float) -> None:
        """A step has ended."""
        total = self._done.setdefault((step, run, way), [0, 0.0])
        total[0] += moved
        total[1] += seconds

    def clear(self) -> None:
        """Another switch begins."""
        self._done.clear()

    def told(self) -> list[dict[str, Any]]:
        """For a result, in the order in which they first ended."""
        return [
            {"step": step, "run": run, "way": way, "bytes": int(moved), "seconds": round(seconds, 6)}
            for (step, run, way), (moved, seconds) in self._done.items()
        ]


def hooks(backend: Backend, steps: Steps, used: Callable[[], int]) -> Backend:
    """A backend of hooks whose steps are noted. `used`: the bytes in use on the devices, for hooks that do
    not count theirs."""
    return cast(Backend, _Clocked(backend, steps, "hooks", {"save": "offload", "restore": "reload"}, used))


def outside(accelerator: Accelerator, steps: Steps) -> Accelerator:
    """An accelerator whose steps are noted."""
    words = {"save": "snapshot", "restore": "restore", "lock": "lock", "unlock": "unlock", "left": "verify"}
    return cast(Accelerator, _Clocked(accelerator, steps, accelerator.name, words, lambda: 0))


class _Clocked:
    """The same backend; the verbs in `words` are timed, and noted under these words."""

    def __init__(
        self, backend: Backend, steps: Steps, way: str, words: dict[str, str], used: Callable[[], int]
    ) -> None:
        self._backend, self._steps, self._way, self._words, self._used = backend, steps, way, words, used

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        return self._timed(found, self._words[name]) if name in self._words else found

    def _timed(self, verb: Callable[..., Awaitable[R]], step: str) -> Callable[..., Awaitable[R]]:
        async def call(subject: Subject, *rest: Any, **named: Any) -> R:
            begun, before = time.monotonic(), self._used()
            result = await verb(subject, *rest, **named)
            counted = result.bytes if isinstance(result, Report) else 0
            moved, seconds = counted or abs(self._used() - before), time.monotonic() - begun
            if moved or seconds >= NOTHING_S:
                self._steps.note(step, subject.run, self._way, moved, seconds)
            return result

        return call
