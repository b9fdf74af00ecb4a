"""Whether the primary is still the one that it was, and who says so."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from slicelock.store.failures import RIGHTS
from tests.support.scripts import Scripts, connect
from tests.support.world import Member, World


@pytest.fixture
def holder(world: World) -> Member:
    world.declare("a", "n1")
    world.declare("b", "n1")
    world.serve()
    made = world.member("r0")
    made.hold("a")
    return made


@pytest.mark.parametrize(
    "kind", [kind for kind in wire.SCRIPT_CALLS if kind not in (wire.Status, wire.AskWanted)]
)
def test_whatever_changes_something_notices_a_new_epoch(
    world: World, holder: Member, kind: type[wire.ScriptCall]
) -> None:
    commands: tuple[wire.ScriptCall, ...] = (
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


@pytest.mark.parametrize("slice_", ["a", "p"])
def test_nothing_is_granted_behind_an_open_connection(world: World, slice_: str) -> None:
    """What was granted in the life before may have been lost: nobody starts before the slice has settled."""
    world.declare("a", "n1")
    world.declare("p")
    world.serve()
    before = world.scripts.run_id
    world.new_epoch()
    asks = world.member("r1").acquire_command(slices=(slice_,), k=1)
    assert asks.reply.decode(world.scripts.call(asks.script, asks.argv(), before)).outcome == "QUEUED"
    assert world.slice(slice_).settling


def test_a_yield_behind_an_open_connection_starts_nobody(world: World, holder: Member) -> None:
    waiter = world.member("r1")
    waiter.ask("a")
    before = world.scripts.run_id
    world.new_epoch()
    gives = wire.Yield(holder.run, holder.lane, holder.k, holder.member)
    world.scripts.call(gives.script, gives.argv(), before)
    assert world.state(waiter.id) == "queued"
    assert world.slice("a").settling


def test_a_stored_turn_is_not_told_held_behind_an_open_connection(world: World, holder: Member) -> None:
    before = world.scripts.run_id
    world.new_epoch()
    asks = holder.acquire_command()
    assert asks.reply.decode(world.scripts.call(asks.script, asks.argv(), before)).outcome == "SWITCHING"


def test_who_may_not_ask_for_the_server_decides_nothing(server: EmbeddedServer, pool: str) -> None:
    """Else others would take its answer for another server's, and the pool would never settle."""
    with connect(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "blind", "on", "nopass", "~*", "&*", "+@all", "-info")
        others = Scripts(admin, pool, clock=False)
        others.run(wire.Declare("p", {}))
        ask = wire.Acquire("r", "j", "main", 1, "0", 1, ("p",), "p1", 60_000, 15_000)
        with connect(server.url, username="blind") as client, pytest.raises(ResponseError) as refusal:
            Scripts(client, pool, clock=False).call("acquire", ask.argv(), "")
        assert any(words in str(refusal.value) for words in RIGHTS)
        assert others.run(wire.Status()).picture["epoch"] == "1"
        admin.acl_deluser("blind")


# ------------------------------------------------------------ back in an earlier life


@pytest.fixture
def back(world: World, holder: Member) -> Member:
    """The first primary is one again, as it was when another took over, where this member began its turn."""
    waiter = world.member("r1")
    waiter.ask("a")
    stored, run_id = world.scripts.backup(), world.scripts.run_id
    world.new_epoch()
    holder.renew()
    world.settle()
    holder.yield_()
    world.serve()
    assert waiter.again().outcome == "HELD"
    world.scripts.restore(stored)
    world.scripts.new_run_id(run_id)
    return waiter


def told(world: World, command: wire.ScriptCall, epoch: int) -> wire.Reply:
    """A call of somebody who knows of this epoch."""
    argv = command.argv()
    return command.reply.decode(world.scripts.call(command.script, argv, f"{world.scripts.run_id}/{epoch}"))


def test_who_was_served_meanwhile_tells_a_primary_that_is_back(world: World, back: Member) -> None:
    told(world, wire.Revoke("nobody/main/1"), 2)
    assert world.record(world.keys.meta)["epoch"] == "3"
    assert world.slice("a").settling
    told(world, back.renew_command({"parts": [back.part()]}), 2)
    world.settle()
    assert world.record(world.keys.meta)["epoch"] == "3"
    assert world.slice("a").holder.run == "r1"  # type: ignore[union-attr]


@pytest.mark.parametrize("epoch", [0, 1, 1_000_000_001, 10**40])
def test_an_epoch_that_is_no_later_one_changes_nothing(world: World, back: Member, epoch: int) -> None:
    told(world, wire.Revoke("nobody/main/1"), epoch)
    assert world.record(world.keys.meta)["epoch"] == "1"
    assert not world.slice("a").settling
