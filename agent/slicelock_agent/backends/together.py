"""Several backends as one: they move different parts of a run, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from slicelock_agent.backends.base import Backend, Estimate, Report, Subject, Truth


class Together:
    """Each verb goes to all parts at once; what one of them fails at leaves the others' work as it is."""

    def __init__(self, first: Backend, *others: Backend) -> None:
        self.name, self._parts = first.name, (first, *others)

    def preflight(self, devices: Sequence[str]) -> list[str]:
        return [problem for part in self._parts for problem in part.preflight(devices)]

    def estimate(self, subject: Subject) -> Estimate:
        found = [part.estimate(subject) for part in self._parts]
        return Estimate(
            sum(one.device_bytes for one in found),
            sum(one.host_bytes for one in found),
            max(one.seconds for one in found),
        )

    async def lock(self, subject: Subject, deadline: float) -> Report:
        return await _merged([part.lock(subject, deadline) for part in self._parts])

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        return await _merged([part.unlock(subject, deadline) for part in self._parts])

    async def save(self, subject: Subject, deadline: float) -> Report:
        return await _merged([part.save(subject, deadline) for part in self._parts])

    async def restore(self, subject: Subject, deadline: float) -> Report:
        return await _merged([part.restore(subject, deadline) for part in self._parts])

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        seen = {await part.observe(subject, deadline) for part in self._parts}
        return seen.pop() if len(seen) == 1 else Truth.UNKNOWN

    async def discard(self, subject: Subject) -> None:
        for part in self._parts:
            await part.discard(subject)


async def _merged(calls: Sequence[Coroutine[Any, Any, Report]]) -> Report:
    reports = await asyncio.gather(*calls)
    failures = {part: why for report in reports for part, why in report.failures.items()}
    return Report(sum(report.bytes for report in reports), failures)
