"""What a pool has stored, in a form that can be compared and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import redis

from slicelock.keys import Keys

DUMP = (Path(__file__).parent / "lua/dump.lua").read_text()
PLAIN = {"meta", "slices", "nodes", "gathering", "deadlines"}
Seen = dict[str, Any]


def record(client: redis.Redis, key: str) -> dict[str, str]:
    """The fields of one record; empty when it is not there."""
    text = cast(bytes | None, client.get(key))
    return json.loads(text) if text else {}


def edit(client: redis.Redis, key: str, **fields: Any) -> None:
    """Change a record behind the scripts' back."""
    client.set(key, json.dumps({**record(client, key), **fields}), keepttl=True)


def stored(client: redis.Redis, keys: Keys) -> Seen:
    """What is stored; a key that nobody should have made is an AssertionError."""
    found = _dump(client, keys)
    kinds = ("slice", "ready", "queue", "request", "run", "procs", "process", "gone", "node")
    seen: Seen = {kind: {} for kind in kinds}
    for name, content in found.items():
        kind, _, what = name.partition(":")
        if what:
            assert kind in seen, f"a key that nobody should have made: {name}"
            seen[kind][what] = content
        else:
            assert kind in PLAIN, f"a key that nobody should have made: {name}"
    meta = found.get("meta", {})
    processes = {f"{run}/{name}" for run, names in seen["procs"].items() for name in names}
    assert processes == seen["process"].keys(), "a process is listed and known, or neither"
    return {
        "time": [int(meta.get(field, 0)) for field in ("pool_ms", "epoch", "quiet_until")],
        "slices": {name: _slice(fields) for name, fields in seen["slice"].items()},
        "ready": seen["ready"],
        "queues": {name: list(scores.items()) for name, scores in seen["queue"].items()},
        "requests": {name: _request(fields) for name, fields in seen["request"].items()},
        "gathering": found.get("gathering", []),
        "runs": {name: _run(fields) for name, fields in seen["run"].items()},
        "heard": {
            run: {name: int(seen["process"][f"{run}/{name}"]["heard"]) for name in names}
            for run, names in seen["procs"].items()
        },
        "silent": {node: "silent" in fields for node, fields in seen["node"].items()},
        "deadlines": dict(sorted(found.get("deadlines", {}).items())),
    }


def _dump(client: redis.Redis, keys: Keys) -> dict[str, Any]:
    rows = cast(list[Any], client.eval(DUMP, 1, keys.meta, keys.prefix + "[^t]*"))  # all but the tests' own
    found: dict[str, Any] = {}
    for name, kind, content in rows:
        if kind == b"string":
            found[name.decode().removeprefix(keys.prefix)] = json.loads(content)
            continue
        texts = [item.decode() for item in content]
        value: Any = sorted(texts)
        if kind == b"zset":
            value = {what: int(float(at)) for what, at in zip(texts[::2], texts[1::2], strict=True)}
        found[name.decode().removeprefix(keys.prefix)] = value
    return found


def _with(prefix: str, fields: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}


def _slice(fields: dict[str, str]) -> Seen:
    blocked = json.loads(fields.get("blocked", "{}"))
    return {
        "state": fields["state"],
        "fence": int(fields["fence"]),
        "admitted": int(fields.get("admitted", 0)),
        "request": fields.get("request", ""),
        "kept": fields.get("kept", ""),
        "disowned": sorted(fields.get("disowned", "").split()),
        "settling": int(fields["settling"]) if "settling" in fields else None,
        "reported": sorted(_with("beat:", fields)),
        "blocked": {n: (b["kind"], b.get("run", ""), int(b.get("until", 0))) for n, b in blocked.items()},
        "tries": {node: int(tries) for node, tries in _with("tries:", fields).items()},
    }


def _request(fields: dict[str, str]) -> Seen:
    ended = fields["state"] == "ended"
    return {
        "state": fields["state"],
        "outcome": fields.get("outcome", ""),
        "slices": fields.get("slices", "").split(),
        "members": int(fields.get("members", 0)),
        "joined": sorted(fields.get("joined", "").split()),
        "processes": _with("member:", fields),
        "yielded": {m: sorted(given.split()) for m, given in _with("yielded:", fields).items()},
        "gone": None if ended else sorted(fields.get("gone", "").split()),
        "fences": {s: int(fence) for s, fence in _with("fence:", fields).items()},
        "later": None if ended else fields.get("later") == "1",
        "leases": None if ended else [int(fields[f]) for f in ("lease_ms", "wait_ms")],
    }


def _run(fields: dict[str, str]) -> Seen:
    return {
        "newest": {lane: int(k) for lane, k in _with("newest:", fields).items()},
        "open": sorted(fields.get("open", "").split()),
        "lost": sorted(_with("lost:", fields)),
    }
