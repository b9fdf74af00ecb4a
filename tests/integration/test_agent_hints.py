"""Hints that are late or false, with a real agent: nobody who holds loses anything by them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from slicelock.embedded import EmbeddedServer
from tests.support.proxy import Proxy
from tests.support.scripts import Scripts, connect
from tests.support.stage import AgentStage, Run
from tests.support.wait import wait_until
from tests.support.world import World

A, B = random.Random(1).randbytes(20_000), random.Random(2).randbytes(30_000)


def test_a_false_hint_costs_a_holder_nothing_that_has_not_begun(agents: AgentStage) -> None:
    """It holds, and has nothing on its devices yet: they stay its own, and so do its bytes."""
    agents.agent()
    a, b = agents.run("a"), agents.run("b")
    b.take("s")
    b.yield_()
    a.take("s")
    channel = agents.world.keys.node_channel("n1")
    assert agents.world.scripts.client.publish(channel, "grant s") == 1
    for _ in range(2):
        beaten = beat_of(agents)
        wait_until(lambda: beat_of(agents) != beaten)  # noqa: B023 - called at once
    assert agents.report()["loaded"] == ["a"]
    use(agents, a, A)
    a.yield_()
    b.take("s")
    use(agents, b, B)
    b.yield_()
    a.take("s")
    assert agents.read(len(A)) == A
    assert not agents.record().violations()


def test_an_old_primary_that_lives_on_takes_a_node_from_nobody(
    own_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    """It keeps the agent's subscription, and a client that it grants a turn; the agent serves the new one."""
    old, new = own_server(), own_server()
    with Proxy(old.url) as proxy, connect(old.url) as there, connect(new.url) as here, ExitStack() as stack:
        agents = AgentStage(Scripts(there, "p", clock=False), proxy.url, tmp_path)
        stack.callback(agents.close)
        agents.agent(silent="30")
        b = agents.run("b")
        b.take("s")
        b.yield_()
        scripts, channel = Scripts(here, "p", clock=False), agents.world.keys.node_channel("n1")
        scripts.restore(agents.world.scripts.backup())
        proxy.move(new.url)
        a = Run(World(scripts), "a", "0").begin()
        stack.callback(a.close)
        a.take("s")
        assert b.ask("s").outcome == "SWITCHING"
        there.publish(channel, "grant s")
        wait_until(lambda: here.pubsub_numsub(channel) == [(channel.encode(), 1)])
        assert there.pubsub_numsub(channel) == [(channel.encode(), 0)]
        use(agents, a, A)
        assert a.again().outcome == "HELD"
        assert not agents.record().violations()


def use(agents: AgentStage, run: Run, data: bytes) -> None:
    """Have a run touch the device for the first time, in its turn, and leave its state there."""
    device = agents.device()
    with device.use(run):
        device.array(len(data), "uint8")[:] = np.frombuffer(data, "uint8")
    device.close()


def beat_of(agents: AgentStage) -> str:
    """When the agent has beaten last."""
    return agents.world.record(agents.world.keys.node("n1"))["beat_ms"]
