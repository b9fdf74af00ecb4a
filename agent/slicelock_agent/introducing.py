"""One node, one agent: whoever comes second finds out at once, before anything is declared or done."""

from __future__ import annotations

import asyncio
import logging
import socket

from slicelock.errors import ConfigurationError
from slicelock.identity import boot_id
from slicelock.wire import Beat, BeatReply
from slicelock_agent.store import Runner

log = logging.getLogger("slicelock_agent")

LOOK_S = 0.25


def identity_of(journal: str) -> str:
    """Which agent this is. Its journal is locked, so no two at a time are the same; a restart on the same
    machine is."""
    return f"{boot_id()}:{journal}@{socket.gethostname()}"


async def introduce(store: Runner, beat: Beat) -> None:
    """Give a beat, or ask, as soon as no other agent of the node is heard of.

    One that has ended falls silent, which is waited for: a machine may be quick to start anew.
    ConfigurationError when the other one beats again.
    """
    heard_ms = -1
    while (reply := await store.run(beat)).outcome == "OTHER":
        if 0 <= reply.heard_ms < heard_ms:
            raise other(beat.node, beat.agent, reply)
        if heard_ms < 0:
            log.info("node %s was last heard from %s; is it still there?", beat.node, named(reply.by))
        heard_ms = reply.heard_ms
        await asyncio.sleep(LOOK_S)


def other(node: str, mine: str, reply: BeatReply) -> ConfigurationError:
    """What an agent is told whose node another one serves."""
    return ConfigurationError(
        f"Node {node} is served by another agent, on {named(reply.by)}, heard {reply.heard_ms / 1000:.1f} s "
        f"ago; this one is on {named(mine)}.",
        advice="Stop one of them, or give it another name: SLICELOCK_NODE or --node.",
    )


def named(agent: str) -> str:
    """An agent in words."""
    rest, _, host = agent.partition("@")
    boot, _, journal = rest.partition(":")
    return f"host {host} (boot {boot[:8]}, journal {journal})"
