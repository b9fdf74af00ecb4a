"""What a client may write and nobody can read harms no other: records past the scripts, and hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import ResponseError

from slicelock import wire
from tests.support.stored import edit, record
from tests.support.world import LEASE_MS, Agent, World, is_wanted


@pytest.fixture(autouse=True)
def slices(world: World) -> None:
    world.declare("a", "n1")
    world.serve()


@pytest.mark.parametrize(
    "hooks", ["[" * 1001 + "]" * 1001, "[" * 40 + "]" * 40, "{", '{"name": "x"}', "7", ""]
)
def test_hooks_that_make_no_sense_are_refused(world: World, n1: Agent, hooks: str) -> None:
    r1 = world.member("r1")
    with pytest.raises(ResponseError, match="hooks that make no sense"):
        world.scripts.call("register", [r1.run, r1.job, r1.process, "1000", "a", hooks, "0"])
    assert world.client.exists(world.keys.prefix + f"process:r1/{r1.process}") == 0


@pytest.mark.parametrize(
    "fields",
    [
        *({"hooks": hooks} for hooks in ("[" * 1001 + "]" * 1001, "[" * 999 + "]" * 999, "{", "")),
        *({name: "["} for name in ("command", "answer")),
        {"heard": "x"},
    ],
)
def test_a_process_that_makes_no_sense_stops_no_beat(world: World, n1: Agent, fields: dict[str, str]) -> None:
    """A client may write records past the scripts."""
    r1, other = world.member("r1"), world.member("r1", "1")
    for one in (r1, other):
        one.register("a")
    r1.ask("a")
    key = world.keys.prefix + f"process:r1/{other.process}"
    before = record(world.client, key)
    edit(world.client, key, **fields)
    assert list(n1.beat().runs["r1"]["processes"]) == [r1.process]
    edit(world.client, key, **before)


def test_a_beat_that_fails_does_not_put_off_its_nodes_silence(world: World, n1: Agent) -> None:
    deadline = world.client.zscore(world.keys.prefix + "deadlines", "node|n1")
    world.scripts.advance(2_000)
    n1.known = "nothing that is known"  # type: ignore[assignment]
    with pytest.raises(ResponseError):
        n1.beat()
    assert world.client.zscore(world.keys.prefix + "deadlines", "node|n1") == deadline
    n1.known = {}
    n1.beat()
    assert world.client.zscore(world.keys.prefix + "deadlines", "node|n1") == (deadline or 0) + 2_000


# ---------------------------------------------------------------- names of records that somebody has removed


def test_the_name_of_a_removed_slice_stops_no_view_and_no_epoch(world: World, n1: Agent) -> None:
    world.declare("lock")
    world.client.delete(world.keys.slice("lock"))
    assert [one.name for one in world.picture().slices] == ["a"]
    assert list(world.picture().senseless) == ["slice lock"]
    world.new_epoch()
    world.settle()
    world.member("r1").hold("a")
    world.declare("lock")
    world.member("r2").hold("lock")
    assert not world.picture().senseless


def test_the_name_of_a_removed_request_stops_no_view(world: World) -> None:
    world.client.sadd(world.keys.prefix + "gathering", "r9/main/1")
    world.client.zadd(world.keys.queue("a"), {"r9/main/2": 0})
    assert set(world.picture().senseless) == {"request r9/main/1", "request r9/main/2"}
    for k in (1, 2):
        assert world.run(wire.Revoke(f"r9/main/{k}", "", False)).outcome == "REVOKED"
    assert not world.picture().senseless
    assert world.run(wire.Revoke("r9/main/1", "", False)).outcome == "ENDED"


@pytest.mark.parametrize("switches", [True, False])
def test_a_removed_request_keeps_its_slice_until_it_is_revoked(
    world: World, n1: Agent, switches: bool
) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    if not switches:
        world.serve()
    world.client.delete(world.keys.request(r1.id))
    n1.beat()
    assert list(world.picture().senseless) == [f"request {r1.id}"]
    world.advance(12_000)
    assert world.run(wire.Revoke(r1.id, "", False)).outcome == "REVOKED"
    r2.hold("a")
    world.advance(2 * LEASE_MS)  # what was left of it has its time


@pytest.mark.parametrize("switches", [True, False])
def test_a_removed_request_has_no_slice_in_the_next_epoch(world: World, n1: Agent, switches: bool) -> None:
    r1, r2 = world.member("r1"), world.member("r2")
    r1.ask("a")
    if not switches:
        world.serve()
    world.client.delete(world.keys.request(r1.id))
    world.new_epoch()
    n1.shown["a"].run = ""
    world.settle()
    r2.hold("a")
    world.advance(2 * LEASE_MS)  # what was left of it has its time


# ---------------------------------------------------------------- records of slices, requests and nodes

NAN, DEEP = float("nan"), "[" * 999 + "]" * 999
HELD, WAITS, GATHERS = "request:r1/main/1", "request:r2/main/1", "request:r3/main/1"


class Pool:
    """Slices a and b of one node: what is damaged is a's, and b is the one that goes on."""

    def __init__(self, world: World) -> None:
        self.world, self.agent = world, world.agent("n1")
        world.declare("b", "n1")
        world.settle()
        world.member("r1").hold("a")
        world.member("r2").ask("a")
        world.member("r3", of=2).ask("a")
        self.other = world.member("r4")
        self.key = world.keys.prefix

    def turn(self) -> None:
        """A turn on b."""
        self.other.ask("b")
        self.serve()
        assert self.other.again().outcome == "HELD"
        assert self.other.beats()["state"] == "held"
        assert self.other.yield_().outcome == "YIELDED"

    def serve(self) -> None:
        for _ in range(2):
            wanted = self.agent.wanted()["b"]
            if is_wanted(wanted):
                self.agent.beat(results=[self.agent.admit("b", wanted)])

    def goes_on(self) -> None:
        """Whatever happens to the pool: time, an operator, a new life of the server."""
        self.turn()
        self.world.scripts.advance(20_000)
        self.agent.beat()
        self.world.run(wire.Drain("b", True))
        self.world.run(wire.Drain("b", False))
        self.turn()
        both = self.world.member("r5")
        with suppress(ResponseError):  # it asks for the slice that is harmed
            both.ask("a", "b")
        with suppress(ResponseError):
            both.cancel()
        self.turn()
        self.world.new_epoch()
        for _ in range(3):
            self.agent.beat()
            self.world.scripts.advance(2_000)
        self.turn()
        assert [one.name for one in self.world.picture().slices if one.name == "b"] == ["b"]


@pytest.fixture
def shared(world: World) -> Iterator[Pool]:
    yield Pool(world)
    world.client.delete(*world.scripts.names())  # nobody can make sense of it


FIELDS: list[tuple[str, dict[str, Any]]] = [
    *(("slice:a", {"settings": bad}) for bad in ("[", "[1]", DEEP, NAN, [[1]])),
    *(
        ("slice:a", {"blocked": bad})
        for bad in ("[", "[1]", '{"n1": 5}', '{"n1": {"reason": NaN}}', DEEP, NAN)
    ),
    *(("slice:a", {name: "x"}) for name in ("fence", "since", "state", "settling", "request", "kept")),
    *(("slice:a", {name: NAN}) for name in ("fence", "state", "nodes", "request", "devices:n1")),
    *((request, {name: "x"}) for request in (HELD, WAITS) for name in ("members", "lease_ms", "tick", "k")),
    *((request, {name: [1]}) for request in (HELD, WAITS, GATHERS) for name in ("slices", "run", "joined")),
    *(("node:n1", {"report:a": bad}) for bad in ("[", DEEP, NAN)),
    *(("run:r1", {name: NAN}) for name in ("open", "rev", "job")),
]


@pytest.mark.parametrize(("record", "fields"), FIELDS)
def test_a_field_that_makes_no_sense_harms_its_own_slice_and_run_only(
    world: World, shared: Pool, record: str, fields: dict[str, Any]
) -> None:
    edit(world.client, shared.key + record, **fields)
    kind, _, name = record.partition(":")
    if kind in ("slice", "request") and "kept" not in fields and "settling" not in fields:
        named = world.picture().senseless
        assert f"{kind} {name}" in named or f"request {fields.get('request')}" in named
    shared.goes_on()


@pytest.mark.parametrize("name", ["slice:a", HELD, WAITS, GATHERS, "run:r1"])
@pytest.mark.parametrize("text", ["{", "[1]", "5", ""])
def test_nor_does_what_is_no_record(world: World, shared: Pool, name: str, text: str) -> None:
    world.client.set(shared.key + name, text)
    assert name == "run:r1" or f"{name.replace(':', ' ')}" in world.picture().senseless
    shared.goes_on()


@pytest.mark.parametrize("name", ["slice:a", "queue:a", "ready:a", HELD, WAITS, "procs:r1"])
def test_nor_does_a_key_of_another_type(world: World, shared: Pool, name: str) -> None:
    world.client.delete(shared.key + name)
    world.client.rpush(shared.key + name, "x")
    shared.goes_on()


@pytest.mark.parametrize(
    "what", ["odd|x", "x", "part|x", "scan|a|0", "settle|nowhere", "retry|a", "switch|x", "|"]
)
def test_nor_does_a_timer_for_nothing(world: World, shared: Pool, what: str) -> None:
    world.client.zadd(shared.key + "deadlines", {what: 0})
    shared.goes_on()


@pytest.mark.parametrize("when", ["free", "switching"])
@pytest.mark.parametrize("nodes", [NAN, [1]])
def test_a_slice_whose_nodes_cannot_be_read_begins_no_turn(
    world: World, n1: Agent, nodes: Any, when: str
) -> None:
    """Nobody has let the run in: without nodes it would be a slice without agents."""
    r1, key = world.member("r1"), world.keys.slice("a")
    if when == "switching":
        r1.ask("a")
    edit(world.client, key, nodes=nodes)
    assert r1.ask("a").outcome in ("QUEUED", "SWITCHING")
    n1.beat()
    assert r1.again().outcome in ("QUEUED", "SWITCHING")
    world.client.delete(*world.scripts.names())  # nobody can make sense of it
