"""Bringing a run back onto a slice's devices, and finding out where it is after a step that was cut short."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from slicelock.errors import AgentError
from slicelock.states import RunState
from slicelock_agent import taking_over
from slicelock_agent.backends.base import Report, Subject, Truth
from slicelock_agent.exchanges import Layout
from slicelock_agent.reconcile import Stay
from slicelock_agent.result import Outcome
from slicelock_agent.station import Station
from slicelock_agent.supervision import unless

ATTEMPTS = 2
"""One repetition, where an observation says that nothing was destroyed."""
SECOND_LOOK_S = 0.2


async def restore(at: Station, run: str, fence: int) -> Outcome:
    """Have a saved run on the devices again. Not `done`: it is lost, or still saved where `kept` says so."""
    brought = await fetch(at, run, fence)
    return await release(at, run, fence, brought) if brought.done else brought


async def fetch(at: Station, run: str, fence: int) -> Outcome:
    """Have a saved run on the devices, but not let it go on yet. Not `done`: as `restore` says."""
    stay = at.page.stays[run]
    subject = at.subject(run, fence, stay.image)
    if stay.image and (why := at.accelerator.lacks_room(subject)):
        return Outcome(False, reason=f"run {run} waits for room: {why}", kept=True)
    at.page.put(replace(stay, state=RunState.RESTORING))
    if not stay.image:
        return Outcome(True)
    report, truth = await _bring_back(at, subject)
    if report.ok:
        return Outcome(True, report.bytes)
    reason = f"run {run} cannot be restored: {report.reason}"
    if truth in (Truth.LOST, Truth.ABSENT):
        await lose(at, stay)
        return Outcome(False, reason=reason)
    at.page.put(replace(stay, state=RunState.SAVED if truth is Truth.SAVED else RunState.UNKNOWN))
    return Outcome(False, reason=reason, kept=True)


async def release(at: Station, run: str, fence: int, brought: Outcome) -> Outcome:
    """Let a run go on that has been fetched. Not `done`: what has become of it is to be found out."""
    stay = at.page.stays[run]
    if stay.image:
        subject = at.subject(run, fence, stay.image)
        report = await at.accelerator.unlock(subject, at.deadline(subject))
        if not report.ok:
            at.page.put(replace(stay, state=RunState.UNKNOWN))
            return Outcome(False, reason=f"run {run} cannot be let go on: {report.reason}", kept=True)
    at.page.put(replace(stay, state=RunState.LOADED, image=""))
    await _forget_image(at, stay)
    return brought


async def send_back(at: Station, run: str, fence: int) -> None:
    """Have a run saved again that was fetched and is not to go on after all."""
    stay = at.page.stays[run]
    subject = at.subject(run, fence, stay.image)
    report = await at.accelerator.save(subject, at.deadline(subject))
    at.page.put(replace(stay, state=RunState.SAVED if report.ok else RunState.UNKNOWN))


async def _bring_back(at: Station, subject: Subject) -> tuple[Report, Truth]:
    """The last report, and what was observed after a failure."""
    deadline = at.deadline(subject)
    for attempt in range(ATTEMPTS):
        report = await at.accelerator.restore(subject, deadline)
        if report.ok:
            return report, Truth.LOADED
        truth = await at.accelerator.observe(subject, deadline)
        again = truth in (Truth.SAVED, Truth.PARTIAL) and not at.accelerator.lacks_room(subject)
        if not again or attempt == ATTEMPTS - 1:
            return report, truth
    raise AssertionError("unreachable")


async def lose(at: Station, stay: Stay) -> None:
    """A run's state is lost for good. What is left of it on the devices is strange, and wiped if needed."""
    at.page.put(replace(at.page.stays[stay.run], state=RunState.LOST, hooked=False, image=""))
    await _forget_image(at, stay)


async def reload(
    at: Station, run: str, fence: int, recalled: asyncio.Event, layout: Layout | None = None
) -> Outcome:
    """Have the run's hooks reload what they offloaded; not `done`: they did not."""
    subject = replace(await at.hooked(run, fence), layout=layout)
    used = at.used
    report = await unless(recalled, at.hooks.restore(subject, at.hook_deadline))
    if report is None:
        return Outcome(False, recalled=True)
    if report.failures:
        reasons = [f"run {run} cannot be restored: {report.reason}", at.accelerator.company(at.devices)]
        return Outcome(False, reason="; ".join(filter(None, reasons)))
    at.page.put(replace(at.page.stays[run], hooked=False))
    return Outcome(True, report.bytes or max(0, at.used - used))


async def drop(at: Station, run: str) -> None:
    """Forget a dead run: what it left on the devices and what is saved of it.

    AgentError as long as what killed processes had there has not come back.
    """
    stay = at.page.stays[run]
    if not at.accelerator.exclusive or stay.state in (RunState.LOADED, RunState.POISONED):
        await at.accelerator.wipe(at.devices)
    await _forget_image(at, stay)
    at.page.drop(run)


async def find_out(at: Station, run: str) -> None:
    """A step was begun and its end is not known: observe, then finish it or undo it; never guess.

    AgentError as long as nobody can tell.
    """
    stay = at.page.stays[run]
    if stay.state is RunState.UNKNOWN and not stay.image:  # all that is known is what another agent has told
        if why := await taking_over.take_over(at, run, at.page.top):
            raise AgentError(f"Nobody can tell where the state of run {run} is: {why}.")
        stay = at.page.stays[run]
        if stay.image:
            return
    if not stay.image:  # only hooks were at work: the run is loaded, and `hooked` says what is to be reloaded
        at.page.put(replace(stay, state=RunState.LOADED))
        return
    subject = at.subject(run, at.page.top, stay.image)
    truth = await _stable_truth(at, subject)
    if truth is Truth.PARTIAL:
        truth = await _finish(at, stay, subject)
    await _settle_on(at, stay, truth)


async def _stable_truth(at: Station, subject: Subject) -> Truth:
    """What is observed; a backend that cannot tell is asked once more."""
    deadline = at.deadline(subject)
    truth = await at.accelerator.observe(subject, deadline)
    if truth is Truth.UNKNOWN:
        await asyncio.sleep(SECOND_LOOK_S)
        truth = await at.accelerator.observe(subject, deadline)
    return truth


async def _finish(at: Station, stay: Stay, subject: Subject) -> Truth:
    deadline = at.deadline(subject)
    verbs = [at.accelerator.save, at.accelerator.restore]
    if stay.state is RunState.RESTORING:
        verbs.reverse()
    truth = Truth.PARTIAL
    for verb in verbs:  # what cannot be finished is undone
        if truth is Truth.PARTIAL:
            await verb(subject, deadline)
            truth = await at.accelerator.observe(subject, deadline)
    return truth


async def _settle_on(at: Station, stay: Stay, truth: Truth) -> None:
    match truth:
        case Truth.LOADED:
            report = await at.accelerator.unlock(
                at.subject(stay.run, at.page.top, stay.image), at.hook_deadline
            )
            if not report.ok:
                raise AgentError(f"Run {stay.run} cannot be let go on: {report.reason}.")
            at.page.put(replace(stay, state=RunState.LOADED, image=""))
            await _forget_image(at, stay)
        case Truth.SAVED:
            at.page.put(replace(stay, state=RunState.SAVED))
        case Truth.ABSENT if stay.state is not RunState.RESTORING:
            at.page.drop(stay.run)
        case Truth.ABSENT | Truth.LOST:
            await lose(at, stay)
        case Truth.UNKNOWN:
            raise AgentError(f"Nobody can tell where the state of run {stay.run} is.")
        case Truth.PARTIAL | Truth.FAILED:
            at.page.put(replace(stay, state=RunState.POISONED))


async def _forget_image(at: Station, stay: Stay) -> None:
    if stay.image:
        await at.accelerator.discard(at.subject(stay.run, at.page.top, stay.image))
