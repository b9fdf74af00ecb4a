"""What a script's answer means to the user: which error, and in which words."""

from __future__ import annotations

from slicelock.errors import (
    Busy,
    Cancelled,
    Expired,
    LeaseLost,
    MemberTaken,
    Mismatch,
    NotGranted,
    QueueFull,
    Revoked,
    RunLost,
    Superseded,
    SwitchFailed,
    UnknownSlice,
)
from slicelock.protocol.ledger import Part, Who
from slicelock.wire import AcquireReply

_ENDED: dict[str, tuple[type[NotGranted], str]] = {
    "failed": (SwitchFailed, "The device state could not be switched"),
    "cancelled": (Cancelled, "The request was cancelled"),
    "revoked": (Cancelled, "The request was revoked"),
    "holder_died": (NotGranted, "A process of this run has died"),
}
_LOST: dict[str, tuple[type[LeaseLost], str]] = {
    "expired": (Expired, "The lease ran out"),
    "revoked": (Revoked, "The turn was revoked"),
    "superseded": (Superseded, "Another turn has taken its place"),
    "holder_died": (LeaseLost, "A process of this run has died in the turn"),
    "cancelled": (LeaseLost, "The turn was cancelled"),
}


def named(part: Part) -> str:
    """The turn in words, for messages."""
    phase = f", phase {part.wish.phase}" if part.wish.phase else ""
    return f"{' '.join(part.wish.slices)} (run {part.run}, turn {part.k} of lane {part.lane}{phase})"


_DECLARE = (
    "Check its name with `slicelock slice list`, or start the agent that has its devices. "
    "A plain lease, without devices: slicelock slice declare NAME --agentless."
)
_ALIKE = "All members of a run take the same turns in the same order."
_TAKEN = "Give each process its own SLICELOCK_MEMBER, or another launch its own SLICELOCK_RUN."
_ANEW = "Start the job anew from its last checkpoint, as another run."

# By outcome: the error, its text, the advice.
_REFUSED: dict[str, tuple[type[NotGranted], str, str]] = {
    "BUSY": (Busy, "No turn on {turn} at once: {reason}.", ""),
    "NO_SUCH_SLICE": (UnknownSlice, "There is no slice {slice} in this pool.", _DECLARE),
    "QUEUE_FULL": (QueueFull, "The queue of slice {slice} is full.", "Try again later."),
    "RUN_LOST": (RunLost, "Run {run} has lost its device state on {slice}: {reason}.", _ANEW),
    "MISMATCH": (Mismatch, "Run {run} does not agree on {turn}: {reason}, not {asked}.", _ALIKE),
    "LATE": (Mismatch, "The turn on {turn} has begun without member {member}.", _ALIKE),
    "TAKEN": (MemberTaken, "Member {member} of run {run} is another live process ({by}).", _TAKEN),
}


def refusal(reply: AcquireReply, part: Part, who: Who) -> NotGranted:
    """The error for an answer after which the turn will not begin."""
    kind, template, advice = _REFUSED.get(reply.outcome) or _ended(reply)
    text = template.format(
        turn=named(part),
        reason=reply.reason.rstrip(".") or "no reason was given",
        slice=reply.slice,
        run=who.run,
        member=who.member,
        by=reply.by,
        asked=f"{' '.join(part.wish.slices)} with {who.members}",
    )
    if kind in (Mismatch, MemberTaken):
        advice += _launched(who)
    where = reply.slice or " ".join(part.wish.slices)
    return kind(text, advice=advice, slice=where, job=who.job, run=who.run)


def _ended(reply: AcquireReply) -> tuple[type[NotGranted], str, str]:
    kind, text = _ENDED.get(reply.ended, (NotGranted, f"The request has ended ({reply.ended})"))
    return kind, f"No turn on {{turn}}. {text}{': {reason}' if reply.reason else ''}.", ""


def _launched(who: Who) -> str:
    if who.launched == 1 or who.members != 1:
        return ""
    return (
        f" The launcher has started {who.launched} processes, but SLICELOCK_MEMBERS is 1: "
        "set it to auto if all of them take part."
    )


def _because(reason: str) -> str:
    return f": {reason.rstrip('.')}" if reason else ""


def loss(part: Part, who: Who, outcome: str, reason: str, *, state_saved: bool) -> LeaseLost:
    """The error for a turn that is over against its holder's will."""
    kind, text = _LOST.get(outcome, (LeaseLost, f"The turn has ended ({outcome or 'unknown'})"))
    saved = " Its device state is still there." if state_saved else ""
    return kind(
        f"The turn on {named(part)} is lost. {text}{_because(reason)}.{saved}",
        state_saved=state_saved,
        slice=" ".join(part.slices_left),
        job=who.job,
        run=who.run,
        fence=max(part.fences.values(), default=None),
    )
