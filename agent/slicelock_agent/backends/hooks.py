"""The `hooks` backend: the job's own processes move their tensors, when the agent tells them to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slicelock_agent.backends.base import BackendContext, Estimate, Report, Subject, Truth
from slicelock_agent.mailbox import Mailbox, Order
from slicelock_agent.offers import OFFLOAD, RELOAD


class HooksBackend:
    """Commands to the hooks of a subject's processes: offload is its `save`, reload its `restore`.

    Its targets are the processes that have hooks for the slice. It keeps no bytes itself and cannot look
    into a process: whether a device was freed is for the accelerator to tell.
    """

    name = "hooks"

    def __init__(self, context: BackendContext) -> None:
        self._mailbox: Mailbox = context.mailbox

    def preflight(self, devices: Sequence[str]) -> list[str]:
        return []

    def estimate(self, subject: Subject) -> Estimate:
        return Estimate()  # what a process moves comes out of its own memory, most of it taken beforehand

    async def lock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        return Report()

    async def save(self, subject: Subject, deadline: float) -> Report:
        return await self._command(subject, OFFLOAD, deadline)

    async def restore(self, subject: Subject, deadline: float) -> Report:
        return await self._command(subject, RELOAD, deadline)

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        return (
            Truth.UNKNOWN
        )  # only the process knows; hooks restore what they found, so a repetition does no harm

    async def discard(self, subject: Subject) -> None:
        return

    async def _command(self, subject: Subject, what: str, deadline: float) -> Report:
        orders = [
            self._mailbox.send(
                subject.run, target.process, subject.fence, what, subject.slice, layout=subject.layout
            )
            for target in subject.targets
        ]
        try:
            if orders:
                await asyncio.wait([order.answer for order in orders], timeout=deadline)
            return _report(orders, deadline)
        finally:
            for order in orders:
                order.answer.cancel()  # no effect on those that have an answer


def _report(orders: list[Order], deadline: float) -> Report:
    failures: dict[str, str] = {}
    moved = 0
    for order in orders:
        name = f"process {order.process.split(':')[-2]}"
        if not order.answer.done():
            failures[name] = f"its hooks did not {order.what} within {deadline:g} s"
        elif not order.answer.result().ok:
            failures[name] = (
                f"its hooks failed to {order.what}: {order.answer.result().reason or 'no reason given'}"
            )
        else:
            moved += order.answer.result().bytes
    return Report(moved, failures)
