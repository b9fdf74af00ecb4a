"""Many waiters, full memory, other versions, scripts forgotten by the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from slicelock import scripts as sources
from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.support.scripts import Scripts, connect
from tests.support.stored import edit
from tests.support.world import WAIT_MS, Member, World

QUEUE_LIMIT = 20_000


def crowd(world: World, count: int, *slices: str, name: str = "w") -> None:
    """So many runs of one member wait for the slices."""
    source = sources.load("acquire", world.scripts.overlay)
    world.client.script_load(source.text)
    for start in range(0, count, 1_000):
        with world.client.pipeline(transaction=False) as pipe:
            for i in range(start, min(start + 1_000, count)):
                member = world.member(f"{name}{i}")
                member.k, member.slices = 1, slices
                pipe.evalsha(source.sha, 1, world.keys.meta, *member.acquire_command().argv())
            pipe.execute()


def commands_of(world: World, work: Callable[[], object]) -> int:
    """How many Redis commands some work makes the server do."""

    def count() -> int:
        stats = world.client.info("commandstats")
        return sum(entry["calls"] for name, entry in stats.items() if name != "cmdstat_info")

    before = count()
    work()
    return count() - before


# ---------------------------------------------------------------- many


def test_a_turn_costs_the_same_with_many_waiters(world: World) -> None:
    world.declare("a")
    holder = world.member("r0")
    holder.hold("a")

    def turn() -> None:
        """Somebody comes and goes, and the slice changes hands."""
        fresh = world.member(f"x{len(world.queue('a'))}")
        fresh.ask("a")
        fresh.beats()
        fresh.cancel()
        run = world.record(world.keys.slice("a"))["request"].split("/")[0]
        assert world.run(wire.Yield(run, "main", 1, "0")).outcome == "YIELDED"

    crowd(world, 10, "a", name="few")
    few = commands_of(world, turn)
    crowd(world, 3_000, "a", name="many")
    assert commands_of(world, turn) <= few * 1.2 + 5


@pytest.mark.slow
def test_scenario_02_ten_thousand_dead_heads(world: World) -> None:
    """They are reaped in bounded batches; then one live waiter is granted, and nothing is left."""
    world.declare("a")
    holder, live = world.member("r0"), world.member("live")
    holder.hold("a")
    crowd(world, 10_000, "a")
    live.ask("a", wait_ms=20 * WAIT_MS)
    for _ in range(WAIT_MS // 4_000 + 1):
        world.scripts.jump(4_000)
        holder.beats()
    holder.yield_()
    beat = wire.Beat("n", "b", "v", 10_000, {"slices": {}})
    worst = calls = 0
    more = True
    while more:
        worst = max(worst, commands_of(world, lambda: world.run(beat)))
        more = world.run(beat).more
        calls += 2
    assert calls <= 10_000 / 64 + 4
    assert worst < 1_500, "commands in one script"
    assert live.again().outcome == "HELD"
    assert world.queue("a") == []
    assert {event["run"] for event in world.events("held")} == {"r0", "live"}


@pytest.mark.slow
def test_a_full_queue_refuses_by_name_and_takes_again(world: World) -> None:
    world.declare("a")
    world.declare("b")
    holder = world.member("r0")
    holder.hold("a")
    crowd(world, QUEUE_LIMIT, "a")
    assert len(world.queue("a")) == QUEUE_LIMIT
    late = world.member("late")
    reply = late.ask("a", "b")
    assert (reply.outcome, reply.slice) == ("QUEUE_FULL", "a")
    assert late.state == ""
    assert world.queue("b") == []
    assert holder.again().outcome == "HELD", "who is in may ask on"
    world.member("w7").cancel(1)
    assert late.again().outcome == "QUEUED"


def test_a_scan_past_64_is_continued_by_the_next_script(world: World) -> None:
    """Requests ahead that cannot start, since another slice of theirs is blocked, hold nobody up."""
    world.declare("a")
    world.declare("b", "n1")
    world.scripts.advance(11_000)
    assert world.slice("b").blocked
    holder = world.member("r0")
    holder.hold("a")
    crowd(world, 200, "a", "b")
    behind = world.member("behind")
    behind.ask("a")
    holder.yield_()
    for _ in range(5):
        world.scripts.tick()
    assert behind.state == "held"


def test_one_script_looks_at_a_bounded_number_of_requests(world: World) -> None:
    """However many slices there are to look at again, each with a crowd that cannot start."""
    world.declare("b", "n1")
    world.scripts.advance(11_000)
    for i in range(8):
        world.declare(f"a{i}")
        crowd(world, 60, f"a{i}", "b", name=f"w{i}-")
    beats = world.agent("n1")
    assert commands_of(world, lambda: world.run(wire.Declare("c", {}))) < 300, (
        "a new slice: all are looked at again"
    )
    beats.beat()
    for _ in range(12):
        world.scripts.tick()
    assert world.slice("b").state == "switching"


@pytest.mark.parametrize("names", ["ac", "ca", "xy", "yx"])
def test_the_next_script_goes_on_where_one_had_to_stop(world: World, names: str) -> None:
    """Two slices are free at once; whichever is looked at first uses the script's share up."""
    first, second = names
    world.declare(first)
    world.declare(second)
    world.declare("b", "n1")
    world.scripts.advance(11_000)
    holder = world.member("r0")
    holder.hold(first, second)
    crowd(world, 60, first, "b", name="f")
    crowd(world, 4, second, "b", name="s")
    behind = world.member("behind")
    behind.ask(second)
    holder.yield_()
    world.scripts.tick()
    assert behind.state == "held"


def test_a_waiter_whose_record_is_gone_holds_nobody_up(world: World) -> None:
    world.declare("a")
    holder, ghost, live = (world.member(name) for name in ("r0", "r1", "r2"))
    holder.hold("a")
    ghost.ask("a")
    live.ask("a")
    world.client.delete(world.keys.request(ghost.id))
    holder.yield_()
    assert live.again().outcome == "HELD"
    world.client.zrem(world.keys.queue("a"), ghost.id)
    world.client.zrem(world.keys.deadlines, f"part|{ghost.id}|0")
    edit(world.client, world.keys.run("r1"), open="")


def test_a_scan_past_64_in_two_queues_at_once(world: World) -> None:
    """The same where the request behind wants two slices, and the crowd is ahead of it in both queues."""
    for name in "ac":
        world.declare(name)
    world.declare("b", "n1")
    world.scripts.advance(11_000)
    holder = world.member("r0")
    holder.hold("a", "c")
    crowd(world, 200, "a", "b", "c")
    behind = world.member("behind")
    behind.ask("a", "c")
    holder.yield_()
    for _ in range(8):
        world.scripts.tick()
    assert behind.state == "held"


def test_events_are_capped(world: World) -> None:
    world.declare("a")
    with world.client.pipeline(transaction=False) as pipe:
        for _ in range(110_000):
            pipe.xadd(world.keys.events, {"type": "old"})
        pipe.execute()
    world.member("r1").hold("a")
    assert 90_000 < world.client.xlen(world.keys.events) <= 101_000  # type: ignore[operator]


# ---------------------------------------------------------------- full memory


@pytest.fixture
def full(own_server: Callable[..., EmbeddedServer]) -> Iterator[World]:
    """A server of its own, to be filled up to its limit."""
    server = own_server()
    with connect(server.url) as client:
        yield World(Scripts(client, "pool"))


def fill(world: World) -> None:
    """No further write that needs memory succeeds."""
    used = world.client.info("memory")["used_memory"]
    world.client.config_set("maxmemory", used + 2_000_000)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        for i in range(100_000):
            world.client.set(f"filler:{i}", "x" * 100_000)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        for i in range(100_000):
            world.client.set(f"small:{i}", "x" * 10)


def test_scenario_19_full_memory_lets_everybody_let_go(full: World) -> None:
    """What needs memory is refused whole; yield, renew, cancel and beat work."""
    full.declare("a", "n1")
    full.declare("b")
    full.serve()
    r1, r2, r3, r4 = (full.member(f"r{i}") for i in range(1, 5))
    r1.register("a")
    r1.hold("a")
    r2.ask("a")
    r3.hold("b")
    r4.ask("b")
    fill(full)
    before = full.dump()
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        full.member("r5").ask("a")
    assert full.dump() == before, "refused whole"
    assert r1.beats()["state"] == "held"
    assert r4.cancel().outcome == "CANCELLED"
    assert r3.yield_().outcome == "YIELDED"
    assert r1.yield_().outcome == "YIELDED"
    full.serve()
    assert r2.state == "held"
    assert full.slice("b").state == "free"
    full.client.config_set("maxmemory", 0)
    assert full.member("r5").ask("b").outcome == "HELD"


def test_full_memory_still_expires(full: World) -> None:
    full.declare("a", "n1")
    full.serve()
    r1 = full.member("r1")
    r1.hold("a")
    fill(full)
    full.client.config_set("maxmemory", full.client.info("memory")["used_memory"] - 1)
    for _ in range(16):
        now = full.scripts.now_ms + 4_000
        full.client.config_set("maxmemory", 0)
        full.scripts.jump_to(now)
        full.client.config_set("maxmemory", full.client.info("memory")["used_memory"] - 1)
        full.agent("n1").beat()
    assert r1.state == "expired"


# ---------------------------------------------------------------- other versions


def commands(member: Member) -> list[wire.ScriptCall]:
    return [
        member.acquire_command(k=1, slices=("a",)),
        member.renew_command({"parts": []}),
        wire.Yield(member.run, "main", 1, "0"),
        wire.Cancel(member.run, member.job, "main", 1),
        wire.Register(member.run, member.job, member.process, 0, ("a",), []),
        wire.Beat("n1", "b", "v", 10_000, {"slices": {}}),
        wire.Revoke("r1/main/1"),
        wire.Declare("a", {}),
        wire.Forget("slice", "a"),
        wire.Status(),
    ]


def test_every_script_refuses_a_pool_of_another_schema(world: World) -> None:
    world.declare("a")
    edit(world.client, world.keys.meta, schema="99")
    before = world.dump(), world.record(world.keys.meta)
    for command in commands(world.member("r1")):
        assert world.scripts.call(command.script, command.argv()) == [
            *(b"SCHEMA", b"found", b"99", b"expected", b"1")
        ]
        assert (world.dump(), world.record(world.keys.meta)) == before, command.script


def test_scenario_18_no_script_needs_the_servers_cache(world: World) -> None:
    """SCRIPT FLUSH before every call."""
    world.declare("a", "n1")
    world.serve()
    for command in commands(world.member("r1")):
        world.client.script_flush()
        world.run(command)


def test_scripts_ask_the_real_clock_and_server_without_an_overlay(client: redis.Redis, pool: str) -> None:
    real = World(Scripts(client, pool, clock=False))
    real.declare("a")
    r1 = real.member("r1")
    r1.hold("a")
    seconds, _ = client.time()  # type: ignore[misc]
    assert abs(r1.fences["a"] / 1024 / 1000 - seconds) < 60
    assert real.record(real.keys.meta)["run_id"] == client.info("server")["run_id"]
    assert r1.yield_().outcome == "YIELDED"


def test_status_shows_more_of_the_queue_in_focus(world: World) -> None:
    for name in "ab":
        world.declare(name)
        for number in range(30):
            world.member(f"{name}{number}").ask(name)
    seen = world.run(wire.Status(queue_limit=1, focus="b")).picture["slices"]
    assert [(one["name"], len(one["queue"]), one["queued"]) for one in seen] == [
        ("a", 1, "29"),
        ("b", 20, "29"),
    ]
