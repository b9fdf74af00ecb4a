"""Each user of the ACL file can do its work, and nothing that it must not do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import redis

from slicelock import scripts, wire
from slicelock.keys import Keys
from slicelock.store.failures import RIGHTS
from tests.support.acl_server import DEPLOY, USERS, Guarded
from tests.support.world import World

CLIENT = (wire.Acquire, wire.Renew, wire.Yield, wire.Cancel, wire.Register, wire.Status)
SCRIPTS = {
    "client": CLIENT,
    "agent": (
        *(wire.Acquire, wire.Yield, wire.Cancel, wire.Status, wire.Declare),
        *(wire.Beat, wire.AskWanted, wire.Results),
    ),
    "operator": (wire.Declare, wire.Forget, wire.Drain, wire.Revoke, wire.Status),
    "viewer": (wire.Status,),
}
BESIDE = {
    "client": "subscribe ping publish wait select",  # ping: a subscription's watchdog; select: /1 in a URL
    "agent": "subscribe ping select",
    "operator": "xrange xrevrange xread config|get acl|whoami select",  # events, and the doctor
    "viewer": "xrange xrevrange xread select",
}
"""What each user calls beside its scripts, and the opening of a connection (info, client|setname)."""
READS = {"GET", "SMEMBERS", "ZCARD", "ZRANGE", "ZRANK", "ZSCORE"}
"""What `status` reaches of the text that it shares with others; a test below looks."""
KEYS = Keys("p")
NAMED = ("slice", "ready", "queue", "node", "run", "procs", "process", "gone", "request")
WAYS = {"record": "GET", "write": "SET", "erase": "DEL"}
CONSTANTS = {"DEADLINES": "key('deadlines')", "STREAM": "key('events')"}  # of lua/include/keys.lua
CALL = re.compile(r"redis\.p?call\('([A-Z]+)'(?:, key\('([a-z]+)')?")
TOLD = re.compile(r"\{ (?:n = \d, )?'(PUBLISH|XADD)', (?:key\('([a-z]+)')?")  # what `flush` sends at the end
WAY = re.compile(rf"\b({'|'.join(WAYS)})\('([a-z]*)'")


def key_of(kind: str) -> str:
    return KEYS.prefix + (f"{kind}:x" if kind in NAMED else kind or "meta")


def calls(text: str) -> set[tuple[str, str]]:
    """Each command of a script with the key it is for; no key where it has none, or one that is not told."""
    for constant, written in CONSTANTS.items():
        text = text.replace(constant, written)
    sent = CALL.findall(text) + TOLD.findall(text)
    found = {(command, key_of(kind) if kind else "") for command, kind in sent}
    return found | {(WAYS[way], key_of(kind)) for way, kind in WAY.findall(text)}


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[redis.Redis]:
    with guarded.connect("admin") as made:
        yield made


def allowed(admin: redis.Redis, user: str, *words: str) -> bool:
    try:
        return admin.execute_command("ACL", "DRYRUN", user, *words) == b"OK"
    except redis.exceptions.ResponseError:
        return False


ARGUMENTS = {
    "SET": ("v",), "SADD": ("x",), "SREM": ("x",), "ZADD": ("1", "x"),
    "ZREM": ("x",), "ZRANGE": ("0", "1"), "ZRANGEBYSCORE": ("0", "1"), "ZCOUNT": ("0", "1"), "ZRANK": ("x",),
    "ZSCORE": ("x",), "XADD": ("*", "f", "v"),
}  # fmt: skip


@pytest.mark.parametrize("user", USERS)
def test_every_call_of_its_scripts_is_allowed(admin: redis.Redis, user: str) -> None:
    texts = [scripts.load(command.script).text for command in SCRIPTS[user]]
    wanted = {call for text in texts for call in calls(text)} | {("EVALSHA", ""), ("EVAL", "")}
    assert len(wanted) > 8
    keyless = {
        "TIME": (), "INFO": ("server",), "PUBLISH": (KEYS.node_channel("n"), "look"),
        "EVALSHA": ("0" * 40, "1", KEYS.meta), "EVAL": ("return 1", "1", KEYS.meta),
    }  # fmt: skip
    for command, key in sorted(wanted):
        if user == "viewer" and command not in READS | keyless.keys() - {"PUBLISH"}:
            continue  # parts of the shared text that `status` never reaches
        given = keyless.get(command, (key or KEYS.request("x"), *ARGUMENTS.get(command, ())))
        assert allowed(admin, user, command, *given), f"{user} may not {command} {given}"


def granted(user: str) -> tuple[set[str], set[str]]:
    """The commands and the kinds of keys that the ACL file gives a user."""
    text = (DEPLOY / "redis/users.acl").read_text()
    [rules] = re.findall(rf"^user {user} (.*\n(?:  .*\n)*)", text, re.MULTILINE)
    return set(re.findall(r"\+([\w|]+)", rules)), set(re.findall(r"~slicelock:\{\*\}:(\w+)", rules))


@pytest.mark.parametrize("user", USERS)
def test_nothing_is_granted_that_is_not_used(user: str) -> None:
    called = {call for command in SCRIPTS[user] for call in calls(scripts.load(command.script).text)}
    commands = {command for command, _ in called}
    used = {"evalsha", "eval", "info", "client|setname", *BESIDE[user].split()}
    used |= {one.lower() for one in (READS | {"TIME"} if user == "viewer" else commands)}
    allowed, kinds = granted(user)
    assert len(allowed) > 10
    assert allowed - used == set()
    named = {key.removeprefix(KEYS.prefix).partition(":")[0] for _, key in called}
    assert kinds - named == set()


def test_a_viewer_may_read_no_more_than_status_does(world: World) -> None:
    """With everything there is to show: waiting, gathering, blocked, draining; and reasons for all of it."""
    world.declare("a", "n1")
    world.declare("b", "n2")
    world.declare("plain")
    world.serve()
    world.member("r1").hold("a")
    for run in ("r2", "r3"):
        world.member(run).ask("a")
    world.member("r4", of=2).ask("a", "plain")
    world.run(wire.Drain("b", True, "disk"))
    world.member("r5").ask("b")
    world.client.config_resetstat()
    world.run(wire.Status())
    world.run(wire.Status("a", 1))
    beside = {"evalsha", "eval", "time", "info", "config|resetstat"}
    reached = {name.removeprefix("cmdstat_") for name in world.client.info("commandstats")} - beside
    assert reached == {name.lower() for name in READS}


OTHERS = (
    "KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "CONFIG SET maxmemory 1", "CONFIG REWRITE", "DEBUG SLEEP 1",
    "SHUTDOWN", "SAVE", "BGREWRITEAOF", "REPLICAOF h 1", "CLIENT KILL ID 1", "CLIENT PAUSE 1", "SCRIPT FLUSH",
    "SCRIPT KILL", "FUNCTION FLUSH", "ACL SETUSER x", "ACL LIST", "MONITOR", "MIGRATE h 1 k 0 1",
    "SWAPDB 0 1", "MODULE LIST", "HSET slicelock:{p}:meta f v", "GET other", "SET other v", "DEL other",
    "RENAME a b", "XTRIM slicelock:{p}:events MAXLEN 0", "PUBLISH other x", "SUBSCRIBE other", "PSUBSCRIBE *",
    "DUMP slicelock:{p}:meta", "SORT slicelock:{p}:slices",
)  # fmt: skip


@pytest.mark.parametrize("user", USERS)
def test_nobody_may_do_what_nobody_needs(admin: redis.Redis, user: str) -> None:
    assert [words for words in OTHERS if allowed(admin, user, *words.split())] == []


NOT_FOR = {
    "viewer": (
        "SET slicelock:{p}:meta v", "SADD slicelock:{p}:slices x", "DEL slicelock:{p}:slice:s",
        "XADD slicelock:{p}:events * a b", "PUBLISH slicelock:{p}:ch:node:n look", "CONFIG GET maxmemory",
    ),
    "client": (
        "SADD slicelock:{p}:slices x", "SREM slicelock:{p}:slices x", "DEL slicelock:{p}:slices",
        "SADD slicelock:{p}:nodes x", "SREM slicelock:{p}:nodes x", "CONFIG GET maxmemory", "CLIENT LIST",
        "SET slicelock:{p}:other v",
    ),
    "agent": ("SREM slicelock:{p}:slices x", "SREM slicelock:{p}:nodes x", "DEL slicelock:{p}:slices",
              "CONFIG GET maxmemory", "CLIENT LIST"),
    "health": ("EVAL x 0", "GET slicelock:{p}:meta", "INFO", "SUBSCRIBE slicelock:{p}:ch:node:n"),
}  # fmt: skip


@pytest.mark.parametrize("user", NOT_FOR)
def test_nobody_may_do_what_only_others_need(admin: redis.Redis, user: str) -> None:
    assert [words for words in NOT_FOR[user] if allowed(admin, user, *words.split())] == []


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("words", ["FLUSHALL", "SET other v", "DEL slicelock:{p}:slices:x", "PUBLISH x y"])
def test_a_script_may_do_no_more_than_its_caller(guarded: Guarded, user: str, words: str) -> None:
    if user == "operator" and words.startswith("DEL"):
        words = "DEL other"
    call = ", ".join(f"'{word}'" for word in words.split())
    with (
        guarded.connect(user) as link,
        pytest.raises(redis.exceptions.ResponseError, match="|".join(RIGHTS)),
    ):
        link.eval(f"return redis.call({call})", 1, KEYS.meta)


def test_a_check_of_health_needs_no_password(guarded: Guarded) -> None:
    url = guarded.server.url.replace("://", "://health:none@")
    with redis.Redis.from_url(url) as link:
        assert link.ping()
    with (
        redis.Redis.from_url(guarded.server.url) as link,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        link.ping()


def test_users_without_a_secret_are_left_out(guarded: Guarded) -> None:
    with guarded.connect("admin") as admin:
        assert set(admin.acl_users()) == {
            "default",
            "health",
            "admin",
            *USERS,
        }  # neither replica nor sentinel
