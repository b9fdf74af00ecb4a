"""What Redis refuses to a script fails the whole call, and leaves nothing half done."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import redis

from slicelock import scripts, wire
from slicelock.embedded import EmbeddedServer
from slicelock.store.failures import explain
from tests.support.scripts import connect
from tests.support.world import World

PASSWORD = "few-rights"


@pytest.fixture
def user(client: redis.Redis, server: EmbeddedServer) -> Iterator[redis.Redis]:
    """A connection of a user who may do all but what a test takes away."""
    client.execute_command("ACL", "SETUSER", "few", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    with connect(server.url) as made:
        made.execute_command("AUTH", "few", PASSWORD)
        yield made
    client.execute_command("ACL", "DELUSER", "few")


@pytest.mark.parametrize("missing", ["-publish", "-xadd"])
def test_what_may_not_be_told_is_done_all_the_same(
    world: World, client: redis.Redis, user: redis.Redis, missing: str
) -> None:
    """The yield and the grant that follows from it are whole, and the caller learns what it lacks."""
    world.declare("a")
    holder, waiter = world.member("r1"), world.member("r2")
    holder.hold("a")
    waiter.ask("a")
    client.execute_command("ACL", "SETUSER", "few", missing)
    source = scripts.load("yield", world.scripts.overlay)
    argv = wire.Yield("r1", "main", holder.k, holder.member).argv()
    with pytest.raises(redis.ResponseError) as caught:
        user.eval(source.text, 1, world.keys.meta, *argv, world.scripts.run_id)
    assert "rights" in str(explain(caught.value, "here", sent=True))
    assert waiter.again().outcome == "HELD"
    assert holder.yield_().outcome == "ALREADY"


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        ("redis.call('ZRANGE', KEYS[1], 0, -1)", True),
        ("redis.call('SADD', KEYS[1] .. ':list', {})", False),
        ("redis.call('LPUSH', KEYS[1], 'x')", False),
        ("local nothing; nothing.field = 1", False),
        ("error('of our own')", False),
    ],
)
def test_what_redis_refuses_is_told_from_what_makes_no_sense(
    world: World, client: redis.Redis, user: redis.Redis, refused: str, told: bool
) -> None:
    client.execute_command("ACL", "SETUSER", "few", "-zrange")
    name = f"{world.keys.prefix}test:text"
    client.set(name, "a text")
    body = re.sub(r"^--- .*$", "", (scripts.lua_root() / "include/apart.lua").read_text(), flags=re.MULTILINE)
    text = f"{body}\nlocal _, why = apart(function() {refused} end) return why"
    if told:
        with pytest.raises(redis.ResponseError) as caught:
            user.eval(text, 1, name)
        assert "rights" in str(explain(caught.value, "here", sent=True))
    else:
        assert user.eval(text, 1, name)
