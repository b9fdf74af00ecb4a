"""Taking over from an agent whose journal is gone: what it told the pool, and what it has left of runs here.

Nothing is believed that can be looked at: what may be saved is put on the page as unknown, and then found out
(`loading.find_out`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from slicelock.keys import NAME
from slicelock.picture import Picture
from slicelock.settings import AgentSettings
from slicelock.states import RunState
from slicelock.wire import Beat, Status
from slicelock_agent.backends.base import Truth
from slicelock_agent.introducing import reached
from slicelock_agent.processes import Presence
from slicelock_agent.reconcile import DAY_OF_FENCES, ON_DEVICE, UNFINISHED, Stay, whole_number
from slicelock_agent.registry import Registry, Run
from slicelock_agent.station import Station
from slicelock_agent.store import Runner

log = logging.getLogger("slicelock_agent")


async def take_up_reports(
    store: Runner,
    settings: AgentSettings,
    registry: Registry,
    stations: Mapping[str, Station],
    beat: Callable[[dict[str, Any]], Beat],
) -> None:
    """Look up what this node's last agent has told of these slices, and put its runs on their pages, to be
    found out. `beat` makes a beat of this node's with a report.
    """
    reply = await reached(lambda: store.run(Status("", 0)))
    nodes = Picture.of(settings.pool, reply.picture).nodes
    told = [node.reports for node in nodes if node.name == settings.node]
    reports = {name: report for one in told for name, report in one.items() if name in stations}
    for run in [run for report in reports.values() for run in _runs_in(report, "saved", "loaded")]:
        registry.runs.setdefault(run, Run(run))
    question = beat({"known": registry.known(())})
    registry.learn((await reached(lambda: store.run(question))).runs)
    for name, report in reports.items():
        _take_up(stations[name], report)


def _runs_in(report: Mapping[str, object], *lists: str) -> list[str]:
    """The runs in these lists of an agent's report, as Redis has it; what is no name is left out."""
    found = [cast(list[object], report[one]) for one in lists if isinstance(report.get(one), list)]
    return [run for runs in found for run in map(str, runs) if NAME.fullmatch(run)]


def _take_up(at: Station, report: Mapping[str, object]) -> None:
    """What the last agent has told of one slice. Its highest fence holds, unless it lies
    in the far future. Its runs are to be found out, those of which a process is known on this node, alive or
    ended, and which were loaded or have something saved under their names. Devices that tell whose state
    they have know better what is loaded.
    """
    try:
        top = whole_number(report.get("top", 0))
    except ValueError:
        top = 0
    at.page.adopt(top if top <= time.time() * 1_024_000 + DAY_OF_FENCES else 0)
    by_fence = sorted(at.accelerator.images(at.name), key=lambda image: (len(image), image))
    saved = {image.rpartition("@")[0]: image for image in by_fence}
    loaded = _runs_in(report, "loaded")
    runs = {run: saved.get(run, "") for run in [*loaded, *_runs_in(report, "saved")] if _was_here(at, run)}
    if at.accelerator.exclusive:
        loaded = [at.accelerator.found(at.devices)[0]]
        runs = {**dict.fromkeys(filter(None, loaded), ""), **runs}
    for run, image in runs.items():
        if image or run in loaded:
            at.page.put(Stay(run, RunState.UNKNOWN, at.registry.offloaded(run, at.name), image))


async def take_up_devices(at: Station) -> None:
    """Put on the page what only the devices know, and remove what nobody wants."""
    page = at.page
    run, top = at.accelerator.found(at.devices)
    # A device that held nothing of a run keeps its name when the rest is saved: the page knows better.
    known = any(stay.state in ON_DEVICE | UNFINISHED for stay in page.stays.values())
    unknown = run if run not in page.stays and not known else ""
    if top > page.top or unknown:
        page.adopt(top, Stay(unknown, RunState.LOADED) if unknown else None)
    needed = {stay.image for stay in page.stays.values()}
    for image in at.accelerator.images(at.name) - needed:
        await at.accelerator.discard(at.subject("", page.top, image))


def _was_here(at: Station, run: str) -> bool:
    """Whether a process of the run is known on this node, alive or ended."""
    known = at.registry.runs.get(run)
    presences = {one.found.presence for one in known.processes.values()} if known else set[Presence]()
    return bool(presences - {Presence.ELSEWHERE, Presence.OTHERS})


async def take_over(at: Station, run: str, fence: int) -> str:
    """Before a run is let in that the page does not know: an agent whose journal is gone may have locked or
    saved it, or told its hooks to offload. Lets what is only locked go on; puts what is saved on the page, to
    be found out and brought back.

    Why neither can be done now; empty when one has been, or nothing was to be done.
    """
    if at.moved_elsewhere(run):
        return ""
    subject, hooked = at.subject(run, fence, f"{run}@{fence}"), at.registry.offloaded(run, at.name)
    deadline, why = at.deadline(subject), ""
    match await at.accelerator.strays(subject, deadline):
        case Truth.SAVED | Truth.PARTIAL | Truth.FAILED as truth:
            log.warning("run %s is %s, and the journal does not know of it: it is taken over", run, truth)
            at.page.put(Stay(run, RunState.UNKNOWN, hooked, subject.image))
            return ""
        case Truth.UNKNOWN:
            return "the driver does not tell whether it is saved; is one of its processes stopped?"
        case Truth.LOADED:
            why = (await at.accelerator.unlock(subject, deadline)).reason
        case _:
            pass
    if hooked and not why:
        at.page.put(Stay(run, RunState.LOADED, hooked))
    return why
