"""Whether this node's agent is heard of: for health checks of containers and service managers."""

from __future__ import annotations

import asyncio
import json

from slicelock.errors import SlicelockError
from slicelock.exits import ExitCode, exit_code, told
from slicelock.picture import Picture
from slicelock.settings import AgentSettings
from slicelock.store import AsyncStore
from slicelock.wire import Status


def show(settings: AgentSettings, *, as_json: bool) -> ExitCode:
    """Print whether the agent of this node is well; the exit code for it."""
    try:
        ailment = asyncio.run(_ailment(settings))
        code = ExitCode.OTHER if ailment else ExitCode.DONE
    except SlicelockError as failure:
        ailment, code = told(failure), exit_code(failure)
    found = ailment or f"The agent of node {settings.node} is heard of."
    if as_json:
        facts = {"ok": code == ExitCode.DONE, "pool": settings.pool, "node": settings.node, "found": found}
        print(json.dumps(facts))
    else:
        print(found)
    return code


async def _ailment(settings: AgentSettings) -> str:
    """What is wrong with the agent of this node, as far as its pool knows; empty: nothing."""
    store = AsyncStore(settings, name=f"health-{settings.node}")
    try:
        reply = await store.run(Status("", 0))
    finally:
        await store.aclose()
    nodes = {node.name: node for node in Picture.of(settings.pool, reply.picture).nodes}
    age_ms = nodes[settings.node].beat_age_ms if settings.node in nodes else -1
    if age_ms < 0:
        return f"The agent of node {settings.node} has never been heard of in pool {settings.pool}."
    if age_ms > settings.silent * 1000:
        return f"The agent of node {settings.node} was last heard of {age_ms / 1000:.0f} s ago."
    return ""
