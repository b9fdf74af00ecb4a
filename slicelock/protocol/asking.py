"""Asking for a turn until it begins, is refused, or is not wanted any more."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from slicelock.errors import (
    AcquireTimeout,
    ConfigurationError,
    NotGranted,
    NotReplicated,
    StoreError,
    StoreTimeout,
    StoreUnavailable,
)
from slicelock.flow import Call, Flow, Now, Wait
from slicelock.protocol.ledger import Ledger, Part, Who
from slicelock.protocol.notes import note
from slicelock.protocol.refusals import named, refusal
from slicelock.retry import pause_after
from slicelock.wire import WAITING, AcquireReply, Cancel

log = logging.getLogger("slicelock")

LOG_S = 60.0  # a waiting request says so once a minute
TAKEN_S = 15.0  # a process that died unseen counts as this member until its heartbeat is so old
UNKNOWN_S = 15.0  # in this time, the agents have declared their slices to a Redis that started empty
RETRY_S = (0.05, 1.0)  # first and longest pause after a call without an answer
NEXT_SLACK_S = 0.005  # after a deadline in Redis, so that asking then finds it past
GO_ON = {"expired", "superseded", "yielded"}  # an earlier number of this turn; the next one is asked for
NOT_OPENED = {"NO_SUCH_SLICE", "QUEUE_FULL", "RUN_LOST"}
UNDECIDED = "UNDECIDED"  # no script's outcome: Redis did not answer, or its grant was taken back


def acquire(ledger: Ledger, part: Part) -> Flow[None]:
    """Wait until the part's turn begins.

    Raises NotGranted with its reason; StoreError only when Redis has never been reached, was not to be
    waited for, or answers that it cannot. Whatever ends the flow early (a timeout, a cancellation,
    KeyboardInterrupt) withdraws the request: with one call here, and again by the companion until it is
    answered.
    """
    try:
        ledger.open(part)
        yield from _until_held(ledger, part)
    except GeneratorExit:
        ledger.withdraw(part, "the acquire was abandoned")
        raise
    except BaseException as failure:
        yield from _withdraw(ledger, part, failure)
        raise


def _withdraw(ledger: Ledger, part: Part, failure: BaseException) -> Flow[None]:
    cancel = ledger.withdraw(part, f"{type(failure).__name__} in member {ledger.who.member}")
    if cancel is None:
        return
    try:
        yield Call(cancel)
    except (StoreError, ConfigurationError) as trouble:
        log.info("cancelling the turn on %s is left to the companion: %s", named(part), trouble)
    else:
        ledger.delivered(cancel)


@dataclass(slots=True)
class _Patience:
    """How long has been waited, and how long still. A switch counts only while something holds it up."""

    timeout: float
    last: float
    logged: float
    waited: float = 0.0
    counting: bool = True
    doubted: str = ""  # the last outcome, if it may yet change
    doubted_since: float = math.inf
    open_k: int = 0  # the request that Redis has said is open
    retries: int = 0

    def tick(self, now: float) -> None:
        if self.counting:
            self.waited += now - self.last
        self.last = now

    @property
    def left(self) -> float:
        return self.timeout - self.waited if self.counting else math.inf

    def doubts_s(self, outcome: str) -> float:
        """Seconds for which nothing but this outcome was answered."""
        if self.doubted != outcome:
            self.doubted, self.doubted_since = outcome, self.last
        return self.last - self.doubted_since

    def retry_s(self) -> float:
        """The pause after one more call without an answer."""
        self.retries += 1
        return pause_after(self.retries, *RETRY_S)


def _until_held(ledger: Ledger, part: Part) -> Flow[None]:
    timeout = math.inf if part.wish.timeout is None else part.wish.timeout
    patience = _Patience(timeout, last=(now := (yield Now())), logged=now)
    while True:
        sent = patience.last
        try:
            reply: AcquireReply = yield from _ask(ledger, part)
        except NotReplicated as failure:
            if not part.wish.wait:
                raise NotGranted(f"No turn on {named(part)}. {failure}") from None
            yield from _take_back(ledger, part, str(failure))
            reply = AcquireReply(UNDECIDED, str(failure).rstrip("."))
        except (StoreUnavailable, StoreTimeout, ConfigurationError) as failure:  # it was right once
            if not ledger.registered or not part.wish.wait:
                raise
            reply = AcquireReply(UNDECIDED, str(failure))
        patience.tick((yield Now()))
        part.waited_s = patience.waited
        if reply.outcome == "HELD" and set(reply.fences) == set(part.wish.slices):
            ledger.met.update(part.wish.slices)
            ledger.begin(part, reply, sent)
            return note("held", ledger.who, part, waited_s=part.waited_s, moved=part.moved)
        reason = _standing(reply, ledger.who.members)
        pause = _take_answer(ledger, part, reply, patience)
        if patience.left <= 0:
            raise _too_late(part, ledger.who, reason)
        _log(part, patience, reason)
        if pause:
            yield Wait(min(pause, patience.left))
            patience.tick((yield Now()))


def _ask(ledger: Ledger, part: Part) -> Flow[AcquireReply]:
    if ledger.must_register(part.lane):
        yield from register(ledger)
    if not part.k:
        ledger.number(part)
    part.asked = part.spent = True
    return (yield Call(ledger.acquire_call(part)))


def _take_back(ledger: Ledger, part: Part, why: str) -> Flow[None]:
    """Undo a grant that replicas have not confirmed; the next one is asked for, with the same waiting time.

    With several members only the question is repeated: others may have begun their turn already, and
    cancelling would end it.
    """
    who = ledger.who
    if who.members > 1:
        return
    cancel = Cancel(who.run, who.job, part.lane, part.k, why)
    ledger.keep(cancel)
    ledger.number(part, part.k + 1)
    try:
        yield Call(cancel)
    except (StoreError, ConfigurationError) as trouble:
        log.info("taking back the grant of %s is left to the companion: %s", named(part), trouble)
    else:
        ledger.delivered(cancel)


def register(ledger: Ledger) -> Flow[None]:
    """Make this process known, and learn where its lanes stand."""
    call = ledger.register_call()
    try:
        ledger.learn((yield Call(call)))
    except BaseException:
        ledger.forgotten()
        raise


def _take_answer(ledger: Ledger, part: Part, reply: AcquireReply, patience: _Patience) -> float:
    """Seconds to wait for a message after this answer; raises what the answer refuses."""
    patience.counting = reply.outcome != "SWITCHING" or bool(reply.reason)
    if reply.outcome == UNDECIDED:
        return patience.retry_s()
    if reply.outcome == "NO_SUCH_SLICE" and reply.slice in ledger.met and part.wish.wait:
        return _forgotten(ledger, part, reply, patience)
    patience.retries = 0
    if reply.outcome in WAITING:
        patience.doubted, patience.open_k = "", part.k
        ledger.met.update(part.wish.slices)
    if reply.outcome == "QUEUED" and reply.next_ms:
        return min(ledger.who.poll_s, reply.next_ms / 1000 + NEXT_SLACK_S)
    if reply.outcome in WAITING:
        return ledger.who.poll_s
    if reply.outcome == "TAKEN":
        return _taken(ledger, part, reply, patience)
    if reply.outcome == "HELD" or reply.ended in GO_ON:  # held: what a failover has left of it is not enough
        why = reply.reason or reply.ended or f"only {' '.join(reply.fences)} is left of it"
        log.info("turn on %s: %s; asking for the next one", named(part), why)
        ledger.number(part, max(part.k + 1, reply.newest))
        return 0.0
    was_open = reply.outcome in NOT_OPENED and patience.open_k == part.k
    part.spent = was_open or reply.outcome not in NOT_OPENED
    # Those who still gather for it must learn too; of any other request, nothing of ours is left.
    part.asked = was_open or (reply.outcome == "MISMATCH" and reply.missing > 0)
    raise refusal(reply, part, ledger.who)


def _forgotten(ledger: Ledger, part: Part, reply: AcquireReply, patience: _Patience) -> float:
    """A slice was known and is not any more: Redis may have started empty. The request may still be there."""
    if patience.doubts_s(reply.outcome) >= UNKNOWN_S:
        raise refusal(reply, part, ledger.who)
    return patience.retry_s()


def _taken(ledger: Ledger, part: Part, reply: AcquireReply, patience: _Patience) -> float:
    part.asked = part.spent = False  # not ours: cancelling it could end the other process's turn
    if patience.doubts_s(reply.outcome) >= TAKEN_S:
        raise refusal(reply, part, ledger.who)
    return 1.0


def _standing(reply: AcquireReply, members: int) -> str:
    """Where the request stands, in words."""
    match reply.outcome:
        case "GATHERING":
            return _missing(reply, members)
        case "QUEUED":
            return f"{reply.position} request(s) ahead; {reply.reason or 'about to start'}"
        case "SWITCHING":
            return f"switching{': ' + reply.reason if reply.reason else ''}"
        case "NO_SUCH_SLICE":
            return f"Redis does not know slice {reply.slice}; perhaps its agents are about to declare it"
        case "TAKEN":
            return f"another process ({reply.by}) is this member"
        case _:
            return reply.reason or reply.outcome.lower()


def _missing(reply: AcquireReply, members: int) -> str:
    """Who is missing: by name when members are called by their ranks, else by who is here."""
    ranks = {str(rank) for rank in range(members)}
    if ranks.issuperset(reply.joined):
        return f"missing of {members} members: {' '.join(sorted(ranks - set(reply.joined), key=int))}"
    return f"{reply.missing} of {members} members missing; here are {' '.join(reply.joined)}"


def _log(part: Part, patience: _Patience, reason: str) -> None:
    if patience.last - patience.logged >= LOG_S:
        log.warning("waiting for %s for %.0f s: %s", named(part), patience.waited, reason)
        patience.logged = patience.last


def _too_late(part: Part, who: Who, reason: str) -> NotGranted:
    return AcquireTimeout(
        f"No turn on {named(part)} within {part.wish.timeout:g} s: {reason}.",
        slice=" ".join(part.wish.slices),
        job=who.job,
        run=who.run,
    )
