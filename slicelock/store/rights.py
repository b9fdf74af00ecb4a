"""Which parts a Redis user may play: asked of the server's own access rules, without doing anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, cast

from slicelock.keys import Keys

Call = tuple[str, ...]
TURNING = ("SET", "DEL", "ZADD", "ZREM", "SADD", "XADD", "PUBLISH", "SUBSCRIBE")
"""What a client may do beyond looking."""


def calls_of(keys: Keys) -> dict[str, list[Call]]:
    """What each part needs, beyond the parts before it; a few calls stand for all of their kind."""
    run, node, channel = keys.run("doctor"), keys.node("doctor"), keys.node_channel("doctor")
    looking: list[Call] = [
        ("GET", keys.meta),
        ("SMEMBERS", keys.slices),
        ("ZRANGE", keys.deadlines, "0", "0"),
        ("TIME",),
    ]
    changing: list[Call] = [
        ("SET", run, "x"),
        ("DEL", run),
        ("ZADD", keys.deadlines, "1", "x"),
        ("ZREM", keys.deadlines, "x"),
        ("SADD", keys.gathering, "x"),
        ("XADD", keys.events, "*", "f", "v"),
        ("PUBLISH", channel, "x"),
        ("INFO", "server"),
    ]
    turning: list[Call] = [*changing, ("SUBSCRIBE", channel)]
    return {
        "viewer": [*looking, ("XRANGE", keys.events, "-", "+"), ("XREAD", "STREAMS", keys.events, "0")],
        "client": [*looking, *turning],
        "agent": [
            *looking,
            *turning,
            ("SET", node, "x"),
            ("SADD", keys.slices, "x"),
            ("SADD", keys.nodes, "x"),
        ],
        "operator": [*looking, *changing, ("SREM", keys.slices, "x"), ("SREM", keys.nodes, "x")],
    }


def parts(ask: Callable[..., Any], keys: Keys) -> Mapping[str, list[str]] | None:
    """By part, the commands that this user may not call for it; None where the server cannot tell."""
    wanted = calls_of(keys)
    every = list(dict.fromkeys(call for calls in wanted.values() for call in calls))
    words = [word for call in every for word in (str(len(call)), *call)]
    script = (files("slicelock.store") / "lua/rights.lua").read_text()
    told = cast("list[int] | None", ask("EVAL", script, "0", *words))
    if told is None or len(told) != len(every):
        return None
    allowed = {call for call, may in zip(every, told, strict=True) if may}
    return {
        part: [" ".join(call[:2]) for call in calls if call not in allowed] for part, calls in wanted.items()
    }
