"""What viewers ask of trace events: the Trace Event Format, as far as we write it, without mercy.

Every complaint is a line. Chrome and Perfetto pass over what they do not understand, so that a trace with
faults opens all the same, and lacks something.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

Trace = dict[str, Any]
COMMON = {"ph", "name", "ts", "pid", "tid"}
FIELDS = {
    "X": COMMON | {"dur", "cat", "args"},
    "M": COMMON | {"args"},
    "i": COMMON | {"s", "args"},
    "C": COMMON | {"args"},
    "s": COMMON | {"cat", "id"},
    "f": COMMON | {"cat", "id", "bp"},
}
METADATA = {"process_name": "name", "thread_name": "name", "thread_sort_index": "sort_index"}


def complaints(text: str) -> list[str]:
    """All that is wrong with a trace, by its text."""
    told = json.loads(text, parse_constant=lambda word: _wrong(f"{word} is no JSON"))
    events: list[Trace] = told["traceEvents"]
    found = [f"unknown part {name}" for name in told.keys() - {"traceEvents", "displayTimeUnit", "otherData"}]
    if told["displayTimeUnit"] not in ("ms", "ns"):
        found.append("displayTimeUnit is ms or ns")
    for event in events:
        found += [f"{why}: {event}" for why in _of_one(event)]
    return found or [*_names(events), *_nesting(events), *_arrows(events), *_counters(events)]


def _wrong(why: str) -> None:
    raise ValueError(why)


def whole(value: object) -> bool:
    """A number of µs, or of a process or thread: none below nothing, and true is no number."""
    return type(value) is int and value >= 0


def _of_one(event: Trace) -> Iterator[str]:
    kind = event.get("ph")
    if kind not in FIELDS:
        yield "this kind is not written"
        return
    if event.keys() != FIELDS[kind]:
        yield f"not these fields: {sorted(event.keys() ^ FIELDS[kind])}"
        return
    checks: dict[str, Callable[[Any], bool]] = {
        **dict.fromkeys(("ts", "dur", "pid", "tid"), whole),
        **dict.fromkeys(("name", "cat", "id"), lambda one: isinstance(one, str) and one != ""),
        "args": lambda one: isinstance(one, dict),
        "s": lambda one: one in ("g", "p", "t"),
        "bp": lambda one: one == "e",
    }
    yield from (
        f"{name} is wrong" for name, right in checks.items() if name in event and not right(event[name])
    )
    if kind == "M":
        yield from _of_metadata(event)
    if kind == "C" and not all(type(one) in (int, float) for one in event["args"].values()):
        yield "a counter counts in numbers"


def _of_metadata(event: Trace) -> Iterator[str]:
    if event["name"] not in METADATA:
        yield "no such metadata"
    elif event["args"].keys() != {METADATA[event["name"]]}:
        yield "metadata has one argument"


def _names(events: list[Trace]) -> Iterator[str]:
    """Every process and thread has one name; no two of a process have the same."""
    named: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for one in events:
        if one["ph"] == "M":
            named[one["name"]].append((one["pid"], one["tid"]) if one["tid"] else (one["pid"],))
    for what, places in named.items():
        if len(set(places)) < len(places):
            yield f"{what} is told twice"
    used = {(one["pid"], one["tid"]) for one in events if one["ph"] in "Xsf"}
    yield from (f"thread {one} has no name" for one in used - set(named["thread_name"]))
    processes = {(one["pid"],) for one in events}
    yield from (f"process {one} has no name" for one in processes - set(named["process_name"]))


def _nesting(events: list[Trace]) -> Iterator[str]:
    """Spans of a thread lie apart or within each other: viewers build a stack of them."""
    for place, spans in _spans(events).items():
        stack: list[Trace] = []
        for one in sorted(spans, key=lambda span: (span["ts"], -span["dur"])):
            while stack and _end(stack[-1]) <= one["ts"]:
                stack.pop()
            if stack and _end(stack[-1]) < _end(one):
                yield f"on thread {place}, {one} begins in {stack[-1]} and ends after it"
            stack.append(one)


def _arrows(events: list[Trace]) -> Iterator[str]:
    """An arrow has one beginning and one end, not before it, both within a span of their thread."""
    arrows: dict[tuple[str, str, str], dict[str, list[Trace]]] = defaultdict(lambda: {"s": [], "f": []})
    for one in events:
        if one["ph"] in "sf":
            arrows[one["cat"], one["name"], one["id"]][one["ph"]].append(one)
    spans = _spans(events)
    for name, ends in arrows.items():
        if (len(ends["s"]), len(ends["f"])) != (1, 1):
            yield f"arrow {name} has not one beginning and one end"
            continue
        begin, end = ends["s"][0], ends["f"][0]
        if begin["ts"] > end["ts"]:
            yield f"arrow {name} ends before it begins"
        for one in (begin, end):
            if not any(span["ts"] <= one["ts"] < _end(span) for span in spans[one["pid"], one["tid"]]):
                yield f"arrow {name} hangs on nothing: {one}"


def _counters(events: list[Trace]) -> Iterator[str]:
    """A counter goes forward in time, and never below nothing."""
    last: dict[tuple[int, str], int] = {}
    for one in events:
        if one["ph"] != "C":
            continue
        place = one["pid"], one["name"]
        if one["ts"] < last.get(place, 0) or min(one["args"].values()) < 0:
            yield f"counter {place} goes back: {one}"
        last[place] = one["ts"]


def _spans(events: list[Trace]) -> dict[tuple[int, int], list[Trace]]:
    found: dict[tuple[int, int], list[Trace]] = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            found[one["pid"], one["tid"]].append(one)
    return found


def _end(span: Trace) -> int:
    return span["ts"] + span["dur"]
