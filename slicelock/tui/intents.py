"""What an operator may do from the view, and the questions that come before it."""

from __future__ import annotations

from dataclasses import dataclass

from slicelock.picture import SliceView
from slicelock.words import count


@dataclass(frozen=True, slots=True)
class RevokeTurn:
    """End a named request."""

    request: str
    name: str


@dataclass(frozen=True, slots=True)
class DrainSlices:
    """Let nothing new start on slices, or let them go on."""

    names: tuple[str, ...]
    draining: bool
    what: str


Intent = RevokeTurn | DrainSlices


@dataclass(frozen=True, slots=True)
class Question:
    """What will happen if the answer is yes: one line that asks, and lines that explain."""

    ask: str
    lines: tuple[str, ...]
    intent: Intent


def revoke_question(one: SliceView) -> Question | None:
    """None where there is nobody to revoke."""
    who = one.holder
    if who is None:
        return None
    others = " ".join(name for name in who.slices if name != one.name)
    told = [
        f"Request {who.id}" + (f" also has {others}; it ends there too." if others else "."),
        "The job is told, and gets Revoked. Its process is not touched; "
        "its state stays where it is until the next switch.",
    ]
    if one.queued and not one.draining:
        told.append(f"The next of {count(one.queued, 'waiter')} starts.")
    verb = "turn" if who.state == "held" else "switch"
    return Question(
        f"Revoke the {verb} of {who.job} on {one.name}?", tuple(told), RevokeTurn(who.id, one.name)
    )


def drain_question(one: SliceView) -> Question:
    """Drain a slice, or let it go on when it drains already."""
    intent = DrainSlices((one.name,), not one.draining, one.name)
    if one.draining:
        waits = f"{count(one.queued, 'waiter')} may start." if one.queued else "Nobody waits for it."
        return Question(f"Let {one.name} go on?", (f"{one.draining}. Turns start again; {waits}",), intent)
    return Question(f"Drain {one.name}?", (_now(one), _after(one.queued)), intent)


def drain_node_question(node: str, slices: tuple[SliceView, ...]) -> Question:
    """Drain every slice of a node, or let all of them go on when all drain already."""
    names, waiters = tuple(one.name for one in slices), sum(one.queued for one in slices)
    draining = not all(one.draining for one in slices)
    intent = DrainSlices(names, draining, f"node {node}")
    listed = f"Its slices: {' '.join(names)}."
    if not draining:
        return Question(f"Let node {node} go on?", (listed, "Turns start there again."), intent)
    return Question(
        f"Drain node {node}?", (listed, "Turns that run there end by themselves.", _after(waiters)), intent
    )


def _now(one: SliceView) -> str:
    if one.holder is None:
        return "Nobody has it now."
    return f"The turn of {one.holder.job} goes on and ends by itself."


def _after(waiters: int) -> str:
    waits = f"{count(waiters, 'waiter')} and whoever comes" if waiters else "whoever comes"
    return f"Nothing new starts: {waits} must wait until it is undone."
