"""What a client may write and nobody can read harms no other: records past the scripts, and hooks."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from tests.support.stored import edit, record
from tests.support.world import Agent, World


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
