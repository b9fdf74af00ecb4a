"""What is true of a pool's stored state at any time: the invariants that a picture can show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.support.stored import Seen


def check(seen: Seen) -> None:
    """AssertionError when what is stored contradicts itself."""
    for name, s in seen["slices"].items():
        _check_slice(name, s, seen)
    queued = {s: set(dict(queue)) for s, queue in seen["queues"].items()}
    for name, request in seen["requests"].items():
        _check_request(name, request, seen, {s for s, waiting in queued.items() if name in waiting})
    for what in seen["deadlines"]:
        assert _has_reason(what, seen), f"a timer for nothing: {what}"
    if any(seen["queues"].values()):
        later = any(what.startswith("later|") for what in seen["deadlines"])
        assert later or any(map(_is_busy, seen["slices"].values())), "somebody waits for nothing"


def _is_busy(s: Mapping[str, Any]) -> bool:
    return s["state"] != "free" or bool(s["settling"] or s["kept"] or s["blocked"])


def _check_slice(name: str, s: Mapping[str, Any], seen: Seen) -> None:
    """A slice has at most one open granted request, and what it has is granted to it."""
    if s["state"] == "free":
        assert s["request"] == "", f"{name} is free and has {s['request']}"
        assert name not in seen["ready"], f"{name} is free, and nodes are ready for it"
        return
    holder = seen["requests"].get(s["request"])
    assert holder is not None, f"{name} is {s['state']} by {s['request']}, which is not known"
    assert holder["state"] == s["state"], (
        f"{name} is {s['state']} by {s['request']}, which is {holder['state']}"
    )
    assert name in holder["slices"], f"{s['request']} has {name} and did not ask for it"
    assert name not in holder["gone"], f"{s['request']} has given {name} back and has it"


def _check_request(name: str, request: Mapping[str, Any], seen: Seen, places: set[str]) -> None:
    """A granted request has all of its slices; a queued one is in all of its queues, any other in none."""
    if request["state"] in ("queued", "switching"):
        assert len(request["joined"]) == request["members"], f"{name} is {request['state']} and gathers still"
    if request["state"] in ("switching", "held"):
        for s in set(request["slices"]) - set(request["gone"]):
            assert seen["slices"][s]["request"] == name, f"{name} is {request['state']} without {s}"
    wanted = set(request["slices"]) if request["state"] == "queued" else set[str]()
    assert places == wanted, f"{name} is {request['state']} and in the queues of {places}"
    assert (name in seen["gathering"]) == (request["state"] == "gathering"), f"{name} is {request['state']}"
    is_open = name in seen["runs"].get(name.partition("/")[0], {"open": []})["open"]
    assert is_open == (request["state"] != "ended"), f"{name} is {request['state']}"


def _state(request: str, seen: Seen) -> str:
    return seen["requests"].get(request, {"state": "ended"})["state"]


# What a timer of each kind needs to have in the pool.
_REASONS: dict[str, Callable[[str, Seen], bool]] = {
    "part": lambda what, seen: _state(what.rpartition("|")[0], seen) != "ended",
    "gather": lambda request, seen: _state(request, seen) == "held",
    "switch": lambda request, seen: _state(request, seen) == "switching",
    "settle": lambda name, seen: seen["slices"][name]["settling"] is not None,
    "later": lambda request, seen: _state(request, seen) != "ended",
    "kept": lambda name, seen: bool(seen["slices"][name]["kept"]),
    "retry": lambda name, seen: name in seen["slices"],
    "scan": lambda what, seen: what.partition("|")[0] in seen["slices"],
    "node": lambda node, seen: node in seen["silent"],
    "run": lambda run, seen: run in seen["runs"],
}


def _has_reason(what: str, seen: Seen) -> bool:
    kind, _, rest = what.partition("|")
    return kind in _REASONS and _REASONS[kind](rest, seen)
