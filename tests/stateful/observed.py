"""The reference's state in the form of `tests.support.stored`, and where two such forms differ."""

from __future__ import annotations

from typing import Any, cast

from tests.stateful.reference import Pool
from tests.stateful.state import Request
from tests.support.stored import Seen


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
                    "admitted": s.admitted,
                    "request": s.request,
                    "kept": s.kept,
                    "disowned": sorted(s.disowned),
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
        "later": None if ended else request.later,
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
