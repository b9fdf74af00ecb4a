"""A whole story with any one of its calls lost or delivered late: in the end all stored is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.support.proxy import Fault, Proxy, script_call
from tests.support.scripts import OVERLAY, Scripts, connect
from tests.support.world import Member, World, ready

CALLS = [command.script for command in wire.SCRIPT_CALLS if command not in (wire.Status, wire.AskWanted)]
FENCE = 1_800_000_000_000 * 1024


class Stubborn(Scripts):
    """Repeats a call until it is answered, as clients and agents do."""

    def call(self, script: str, argv: list[str], run_id: str | None = None) -> list[bytes]:
        while True:
            try:
                return super().call(script, argv, run_id)
            except redis.ConnectionError:
                continue


@pytest.fixture
def proxy(server: EmbeddedServer, make_pool: object) -> Iterator[Proxy]:
    with Proxy(server.url) as made:
        yield made


def told(world: World, agent: str, *results: dict[str, Any]) -> None:
    """A beat whose results are sent again until they are answered."""
    world.agent(agent).beat(results=results)


def told_in_haste(world: World, agent: str, *results: dict[str, Any]) -> None:
    """Results by themselves; the rest follows with a beat."""
    world.run(wire.Results(agent, world.agent(agent).agent, list(results)))
    world.agent(agent).beat()


def story(world: World) -> Iterator[None]:
    """Every script: members of two, hook commands, a failed eviction, an exit, a revoke, a drain."""
    n1 = world.agent("n1")
    m0, m1 = world.member("r1", "0", of=2), world.member("r1", "1", of=2)
    other, third = world.member("r2"), world.member("r3")
    steps: list[Callable[[], object]] = [
        lambda: world.declare("a", "n1"),
        lambda: world.declare("b"),
        n1.beat,
        lambda: m0.register("a"),
        lambda: m1.register("a"),
        lambda: m0.ask("a", "b"),
        lambda: m1.ask("a", "b"),
        lambda: other.register("a"),
        lambda: other.ask("a"),
        lambda: told_in_haste(world, "n1", admit(world, "a")),
        m0.again,
        m1.again,
        lambda: m0.yield_("b"),
        lambda: m1.yield_("b"),
        m0.renew,
        m0.yield_,
        m1.yield_,
        lambda: n1.beat(commands=[hook(m0)]),
        lambda: m0.renew(done=1, answers=[{**answer(), "reason": ""}]),
        lambda: told(
            world, "n1", ready("a", FENCE + 1, outcome="FAILED", what="evict", reason="no", run="r1")
        ),
        lambda: third.ask("b"),
        third.cancel,
        lambda: third.cancel(7),
        lambda: m0.ask("a"),
        lambda: m1.ask("a"),
        lambda: world.run(wire.Revoke(m0.id, "enough")),
        lambda: other.register("a", gone=True),
        lambda: n1.beat(exits=[{"run": "r1", "process": m1.process}]),
        lambda: world.declare("c"),
        lambda: world.run(wire.Drain("c", draining=True)),
        lambda: world.run(wire.Forget("slice", "c")),
    ]
    for step in steps:
        step()
        yield


def admit(world: World, name: str) -> dict[str, Any]:
    shown = world.agent("n1").shown[name]
    shown.run, shown.lane, shown.k, shown.fence, shown.top = "r1", "main", 1, FENCE, FENCE
    return ready(name, FENCE, moved=True)


def hook(member: Member) -> dict[str, Any]:
    return {"run": member.run, "process": member.process, "n": FENCE, "what": "offload", "slice": "a"}


def answer() -> dict[str, Any]:
    return {"n": FENCE, "what": "offload", "outcome": "done", "bytes": 1, "seconds": 0.5}


@pytest.fixture
def expected(client: redis.Redis, make_pool: Callable[[], str]) -> dict[str, object]:
    """What is stored after the story without faults."""
    world = World(Scripts(client, make_pool()))
    for _ in story(world):
        pass
    ends = {request["outcome"] for request in requests(world).values()}
    assert ends == {"yielded", "cancelled", "revoked", "holder_died"}
    return world.dump()


def requests(world: World) -> dict[str, dict[str, str]]:
    names = [name for name in world.dump() if name.startswith("request:")]
    return {name: world.record(world.keys.prefix + name) for name in names}


@pytest.mark.parametrize(
    "fault", [Fault.LOSE_CALL, Fault.LOSE_REPLY, Fault.DELIVER_LATE], ids=lambda f: f.name.lower()
)
@pytest.mark.parametrize("call", CALLS)
def test_the_story_ends_the_same(
    proxy: Proxy, make_pool: Callable[[], str], expected: dict[str, object], call: str, fault: Fault
) -> None:
    """The first call of this kind, then the second, … is lost, or comes after its own repetition."""
    for skip in range(40):
        with connect(proxy.url) as client:
            world = World(Stubborn(client, make_pool()))
            proxy.clear()
            proxy.fault(fault, script_call(call, OVERLAY), skip=skip)
            hits = proxy.hits
            for _ in story(world):
                proxy.release()
            if proxy.hits == hits:
                assert skip > 0, f"the story has no {call}"
                return
            assert world.dump() == expected, f"{fault.name} of {call} number {skip + 1}"
    raise AssertionError("the story is longer than that")
