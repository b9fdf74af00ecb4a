"""The server's state and the reference's in the same form, so that they can be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from slicelock.keys import Keys
from tests.stateful.reference import Pool, Request
from tests.support.scripts import Scripts

DUMP = (Path(__file__).parents[1] / "support/lua/dump.lua").read_text()
PLAIN = {"meta", "slices", "nodes", "gathering", "deadlines"}
Seen = dict[str, Any]


def of_server(scripts: Scripts) -> Seen:
    """What is stored; a key that nobody should have made is an AssertionError."""
    stored = _stored(scripts)
    seen: Seen = {"slice": {}, "ready": {}, "queue": {}, "request": {}, "run": {}, "procs": {}, "node": {}}
    for name, content in stored.items():
        kind, _, what = name.partition(":")
        if what:
            assert kind in seen, f"a key that nobody should have made: {name}"
            seen[kind][what] = content
        else:
            assert kind in PLAIN, f"a key that nobody should have made: {name}"
    meta = stored.get("meta", {})
    return {
        "time": [int(meta.get(field, 0)) for field in ("pool_ms", "epoch", "quiet_until")],
        "slices": {name: _slice(hash_) for name, hash_ in seen["slice"].items()},
        "ready": seen["ready"],
        "queues": {name: list(scores.items()) for name, scores in seen["queue"].items()},
        "requests": {name: _request(hash_) for name, hash_ in seen["request"].items()},
        "gathering": stored.get("gathering", []),
        "runs": {name: _run(hash_) for name, hash_ in seen["run"].items()},
        "heard": {
            run: {f.removesuffix("#heard"): int(v) for f, v in hash_.items() if f.endswith("#heard")}
            for run, hash_ in seen["procs"].items()
        },
        "silent": {node: "silent" in hash_ for node, hash_ in seen["node"].items()},
        "deadlines": dict(sorted(stored.get("deadlines", {}).items())),
    }


def _stored(scripts: Scripts) -> dict[str, Any]:
    prefix = Keys(scripts.pool).prefix
    rows = cast(list[Any], scripts.client.eval(DUMP, 1, scripts.keys.meta, prefix + "[^t]*"))
    stored: dict[str, Any] = {}
    for name, kind, content in rows:
        texts = [item.decode() for item in content]
        if kind == b"set":
            value: Any = sorted(texts)
        elif kind == b"zset":
            value = {what: int(float(at)) for what, at in zip(texts[::2], texts[1::2], strict=True)}
        else:
            value = {f: v for f, v in zip(texts[::2], texts[1::2], strict=True) if v != ""}
        stored[name.decode().removeprefix(prefix)] = value
    return stored


def _with(prefix: str, fields: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}


def _slice(fields: dict[str, str]) -> Seen:
    blocked = json.loads(fields.get("blocked", "{}"))
    return {
        "state": fields["state"],
        "fence": int(fields["fence"]),
        "request": fields.get("request", ""),
        "kept": fields.get("kept", ""),
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
        "leases": None if ended else [int(fields[f]) for f in ("lease_ms", "wait_ms")],
    }


def _run(fields: dict[str, str]) -> Seen:
    return {
        "newest": {lane: int(k) for lane, k in _with("newest:", fields).items()},
        "open": sorted(fields.get("open", "").split()),
        "lost": sorted(_with("lost:", fields)),
    }


def of_reference(pool: Pool) -> Seen:
    """What should be stored."""
    queues = {name: [(r.id, pool.score(r)) for r in pool.queue(name)] for name in pool.slices}
    return {
        "time": [pool.pool, pool.epoch, pool.quiet_until],
        "slices": {
            name: {
                **{
                    "state": s.state,
                    "fence": s.fence,
                    "request": s.request,
                    "kept": s.kept,
                    "tries": s.tries,
                },
                **{"settling": s.settling, "reported": sorted(s.reported)},
                "blocked": {node: (b.kind, b.run, b.until) for node, b in s.blocked.items()},
            }
            for name, s in pool.slices.items()
        },
        "ready": {name: sorted(s.ready) for name, s in pool.slices.items() if s.ready},
        "queues": {name: queue for name, queue in queues.items() if queue},
        "requests": {name: _reference_request(r) for name, r in pool.requests.items()},
        "gathering": sorted(r.id for r in pool.requests.values() if r.state == "gathering"),
        "runs": {
            name: {
                "newest": run.newest,
                "open": sorted(r.id for r in pool.open_of(name)),
                "lost": sorted(run.lost),
            }
            for name, run in pool.runs.items()
        },
        "heard": {name: run.heard for name, run in pool.runs.items() if run.heard},
        "silent": pool.silent,
        "deadlines": dict(sorted(pool.deadlines.items())),
    }


def _reference_request(request: Request) -> Seen:
    ended = request.state == "ended"
    return {
        **{"state": request.state, "outcome": request.outcome, "slices": list(request.slices)},
        **{"members": request.members, "joined": sorted(request.joined)},
        "processes": {m: p for m, p in request.joined.items() if p != "-"},
        "yielded": {m: ["*"] if "*" in given else sorted(given) for m, given in request.yielded.items()},
        "gone": None if ended else sorted(request.gone),
        "fences": request.fences,
        "leases": None if ended else [request.lease_ms, request.wait_ms],
    }


def difference(seen: Any, wanted: Any, path: str = "") -> list[str]:
    """Where two forms differ, in words."""
    if seen == wanted:
        return []
    if isinstance(seen, dict) and isinstance(wanted, dict):
        names = {*cast(Seen, seen), *cast(Seen, wanted)}
        return [
            line
            for name in sorted(names)
            for line in difference(
                cast(Seen, seen).get(name), cast(Seen, wanted).get(name), f"{path}/{name}" if path else name
            )
        ]
    return [f"{path}: the server has {seen!r}, the reference {wanted!r}"]
