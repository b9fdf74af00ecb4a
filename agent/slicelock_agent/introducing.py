"""One node, one agent: whoever comes second finds out at once, before anything is declared or done."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from slicelock.errors import ConfigurationError, StoreTimeout, StoreUnavailable
from slicelock.wire import Beat, BeatReply
from slicelock_agent.store import Runner

T = TypeVar("T")

log = logging.getLogger("slicelock_agent")

LOOK_S = 0.25
AGAIN_S = 1.0
"""Between two tries to reach Redis."""
SAY_S = 10.0
"""Between two lines about what is waited for."""
NEWER = 2
"""So many newer beats show that another agent is alive: one may have been under way when it was killed."""


def identity_of(boot: str, journal: str) -> str:
    """Which agent this is. Its journal is locked, so no two at a time are the same; a restart on the same
    machine is. The host comes along for people only: a container made anew has another one."""
    return f"{boot}:{journal}@{socket.gethostname()}"


@dataclass
class Watch:
    """What is seen of the agent that a node is said to have."""

    by: str = ""
    epoch: int = 0
    beat_ms: int = 0
    newer: int = 0
    """Beats that came under these eyes. A Redis with older data begins anew."""

    def see(self, reply: BeatReply) -> None:
        if (reply.by, reply.epoch) != (self.by, self.epoch) or reply.beat_ms < self.beat_ms:
            self.by, self.epoch, self.newer = reply.by, reply.epoch, 0
        elif reply.beat_ms > self.beat_ms:
            self.newer += 1
        self.beat_ms = reply.beat_ms


async def introduce(store: Runner, beat: Beat, before: Collection[str] = (), rest_s: float = 0.0) -> None:
    """Give a beat, or ask, as soon as no other agent of the node is heard of.

    One that has ended falls silent, which is waited for: a machine may be quick to start anew. `before`: who
    had this journal in earlier boots; after `rest_s` seconds without a beat of theirs their end is told for
    them. ConfigurationError when the other one still beats. A Redis that goes away meanwhile is waited for.
    """
    watch, said = Watch(), float("-inf")
    while (reply := await reached(lambda: store.run(beat))).outcome == "OTHER":
        watch.see(reply)
        if watch.newer >= NEWER:
            raise other_agent_error(beat.node, beat.agent, reply)
        if reply.by.partition("@")[0] in before and reply.heard_ms > rest_s * 1000:
            log.info("node %s: this machine was started anew since its last beat", beat.node)
            await reached(lambda by=reply.by: store.run(goodbye(beat.node, by)))
            continue
        if time.monotonic() - said > SAY_S:
            said, ago = time.monotonic(), reply.heard_ms / 1000
            log.info("node %s was last heard %.1f s ago, from %s; waiting", beat.node, ago, named(reply.by))
        await asyncio.sleep(LOOK_S)


def goodbye(node: str, agent: str) -> Beat:
    """What lets the next agent of a node serve at once. Nothing else changes: no turn, no slice."""
    return Beat(node, agent, "", 0, {"ended": True})


async def reached(call: Callable[[], Awaitable[T]]) -> T:
    """What a call brings, as soon as Redis can be reached; it must do no harm to repeat it."""
    told = False
    while True:
        try:
            return await call()
        except (StoreUnavailable, StoreTimeout) as failure:
            if not told:
                log.warning("%s Waiting for it.", failure)
            told = True
        await asyncio.sleep(AGAIN_S)


def other_agent_error(node: str, mine: str, reply: BeatReply) -> ConfigurationError:
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
