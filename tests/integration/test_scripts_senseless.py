"""What a client may write and nobody can read harms no other: records past the scripts, and hooks."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from slicelock import wire
from tests.support.stored import edit, record
from tests.support.world import LEASE_MS, Agent, World


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
    edit(world.client, world.keys.prefix + "slice:a", settings="[")
    world.scripts.advance(2_000)
    with pytest.raises(ResponseError):
        n1.beat()
    assert world.client.zscore(world.keys.prefix + "deadlines", "node|n1") == deadline
    edit(world.client, world.keys.prefix + "slice:a", settings="{}")
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
