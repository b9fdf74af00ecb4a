"""Whether the primary is still the one that it was, and who says so."""

from __future__ import annotations

from typing import Any

import pytest

from slicelock import wire
from tests.support.world import Member, World


@pytest.fixture
def holder(world: World) -> Member:
    world.declare("a", "n1")
    world.declare("b", "n1")
    world.serve()
    made = world.member("r0")
    made.hold("a")
    return made


@pytest.mark.parametrize("kind", [kind for kind in wire.COMMANDS if kind is not wire.Status])
def test_whatever_changes_something_notices_a_new_epoch(
    world: World, holder: Member, kind: type[wire.Command]
) -> None:
    commands: tuple[wire.Command, ...] = (
        holder.acquire_command(),
        wire.Renew("x", "x", "p", 1, 1, {"parts": []}),
        wire.Yield("x", "main", 1, "0"),
        wire.Cancel("x", "x", "main", 1, "why"),
        wire.Register("x", "x", "p", 0, (), []),
        wire.Beat("n", "b", "v", 10_000, {"slices": {}}),
        wire.Results("n", "b", []),
        wire.Revoke("x/main/1"),
        wire.Declare("a", {}),
        wire.Forget("slice", "x"),
        wire.Drain("x", True),
    )
    world.new_epoch()
    [command] = [one for one in commands if type(one) is kind]
    world.run(command)
    assert world.record(world.keys.meta)["epoch"] == "2"
    assert world.slice("a").settling
    assert world.slice("b").settling


def test_a_server_is_not_asked_again_who_it_is(world: World, holder: Member) -> None:
    """The caller knows what its connection leads to; a turn that begins and ends need not pay for INFO."""
    before = infos(world)
    holder.yield_()
    holder.hold("a")
    assert infos(world) == before + 1, "the one of this count itself"


def infos(world: World) -> int:
    stats: Any = world.client.info("commandstats")
    return stats.get("cmdstat_info", {"calls": 0})["calls"]


@pytest.mark.parametrize("claim", ["", "another", "life2"])
def test_a_caller_that_does_not_know_its_server_changes_no_epoch(world: World, claim: str) -> None:
    """The server has the last word."""
    world.scripts.call("revoke", ["nobody/main/1", "", "0"], claim)
    assert world.record(world.keys.meta)["epoch"] == "1"


def test_heartbeats_notice_a_server_behind_an_open_connection(world: World, holder: Member) -> None:
    """Something in between may pass a connection on: what the caller knows of its server is out of date."""
    before = world.scripts.run_id
    for number, script in enumerate(
        (wire.Beat("n", "b", "v", 10_000, {"slices": {}}), holder.renew_command({"parts": []}))
    ):
        world.new_epoch()
        world.scripts.call(script.script, script.argv(), before)
        assert world.record(world.keys.meta)["epoch"] == str(number + 2)
        before = world.scripts.run_id
