"""Whether this node's agent is heard of: for health checks of containers and service managers."""

from __future__ import annotations

from slicelock.errors import SlicelockError
from slicelock.model import Picture
from slicelock.settings import AgentSettings
from slicelock.store import DirectStore
from slicelock.wire import Status


async def ailment(settings: AgentSettings) -> str:
    """What is wrong with the agent of this node, as far as its pool knows; empty: nothing."""
    store = DirectStore(settings, name=f"health-{settings.node}")
    try:
        reply = await store.run(Status("", 0))
    except SlicelockError as failure:
        return str(failure)
    finally:
        store.close()
    nodes = {node.name: node for node in Picture.of(settings.pool, reply.picture).nodes}
    age_ms = nodes[settings.node].beat_age_ms if settings.node in nodes else -1
    if age_ms < 0:
        return f"The agent of node {settings.node} has never been heard of in pool {settings.pool}."
    if age_ms > settings.silent * 1000:
        return f"The agent of node {settings.node} was last heard of {age_ms / 1000:.0f} s ago."
    return ""
