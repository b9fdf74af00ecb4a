"""One heartbeat of a process: what it says, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slicelock.protocol.ledger import Ledger, Part
from slicelock.protocol.refusals import loss
from slicelock.wire import Renew, RenewReply

HookCommand = dict[str, Any]
HookAnswer = dict[str, Any]
"""What `wire.RenewReply` and `wire.Renew` say of them."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat: the call, and which turns it names (a part may be another turn's by the answer)."""

    call: Renew
    turns: tuple[tuple[Part, int], ...]
    answers: tuple[HookAnswer, ...]


@dataclass(slots=True)
class News:
    """What a heartbeat's answer brings: waiting parts to look again, turns lost, hook commands to run."""

    look: list[Part] = field(default_factory=list[Part])
    lost: list[Part] = field(default_factory=list[Part])
    commands: list[HookCommand] = field(default_factory=list[HookCommand])
    ask_again: bool = False
    epoch: int = 0


def beat(ledger: Ledger, answers: Sequence[HookAnswer] = ()) -> Heartbeat:
    """Everything that this process has, in one call."""
    who = ledger.who
    parts = [part for part in list(ledger.open_parts.values()) if part.asked]
    report = {
        "parts": [_described(part, ledger) for part in parts],
        "done": {
            lane: {"k": done.k, "member": who.member, "members": who.members, "gave_up": done.gave_up}
            for lane, done in list(ledger.done.items())
        },
        "answers": list(answers),
    }
    call = Renew(who.run, who.job, who.process, who.lease_ms, who.wait_ms, report)
    return Heartbeat(call, tuple((part, part.k) for part in parts), tuple(answers))


def _described(part: Part, ledger: Ledger) -> dict[str, Any]:
    return {
        "lane": part.lane,
        "k": part.k,
        "member": ledger.who.member,
        "members": ledger.who.members,
        "slices": part.wish.slices,
        "phase": part.wish.phase,
        "priority": part.wish.priority,
        "fences": dict(part.fences),
        "yielded": part.given_back,
    }


def absorb(ledger: Ledger, sent_beat: Heartbeat, reply: RenewReply, sent: float) -> News:
    """Take the answer in. `sent` is the monotonic time from before the call: a lease counts from there."""
    news = News(commands=list(reply.commands), epoch=reply.epoch)
    if not reply.registered:
        ledger.forgotten()
    for (part, k), state in zip(sent_beat.turns, reply.parts, strict=True):
        if ledger.open_parts.get(part.lane) is part and part.k == k:
            _absorb_part(ledger, part, state, sent, news)
    return news


def _absorb_part(ledger: Ledger, part: Part, state: dict[str, Any], sent: float, news: News) -> None:
    if not part.fences:
        if state["state"] not in ("gathering", "queued", "switching"):
            news.look.append(part)  # the flow asks for itself
        return
    match state["state"]:
        case "LOST":
            saved = state.get("state_saved") == "1"
            reason, outcome = str(state.get("reason") or ""), str(state.get("outcome") or "")
            lose(ledger, part, outcome, reason, state_saved=saved)
            news.lost.append(part)
        case "held":
            part.deadline, part.unconfirmed = sent + ledger.who.lease_ms / 1000, False
            part.wanted = state.get("wanted") == "1"
        case _:  # a new epoch has not settled yet
            news.ask_again = True


def lose(ledger: Ledger, part: Part, outcome: str, reason: str, *, state_saved: bool = False) -> None:
    """The turn is over against its holder's will."""
    part.loss = loss(part, ledger.who, outcome, reason, state_saved=state_saved)
    ledger.close(part)


def overdue(ledger: Ledger, now: float, why: str) -> tuple[list[Part], list[Part]]:
    """Turns past their lease by this process's clock: those that are lost by it, and those now unconfirmed.
    `why` they were not renewed is told to who loses one.

    With agents, nobody else can be let onto the devices while this process lives, so only Redis's word ends
    the turn. Without agents, the lease is all there is.
    """
    late = [part for part in list(ledger.open_parts.values()) if part.fences and part.deadline <= now]
    lost = [part for part in late if part.agentless]
    doubtful = [part for part in late if not part.agentless and not part.unconfirmed]
    for part in doubtful:
        part.unconfirmed = True
    for part in lost:
        lose(ledger, part, "expired", why)
    return lost, doubtful


def next_deadline(ledger: Ledger) -> float:
    """The monotonic time at which `overdue` will have something to say; infinity if never."""
    parts = list(ledger.open_parts.values())
    return min(
        (p.deadline for p in parts if p.fences and not p.unconfirmed),
        default=float("inf"),
    )
