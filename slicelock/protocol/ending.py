"""The end of a turn, and of a process."""

from __future__ import annotations

import logging

from slicelock.errors import ConfigurationError, StoreError, StoreTimeout
from slicelock.flow import Call, Flow, Now
from slicelock.protocol.ledger import Ledger, Part
from slicelock.protocol.notes import note
from slicelock.protocol.refusals import loss, named
from slicelock.wire import Yield, YieldReply

log = logging.getLogger("slicelock")

QUICK_S = 0.5  # a failure so quick is a connection that was closed meanwhile: one more try costs nothing


def give_back(ledger: Ledger, part: Part, slices: tuple[str, ...] = ()) -> Flow[int]:
    """End this member's part of a turn, of `slices` or of all; how many requests wait for them.

    Raises LeaseLost when the turn was over already. A Redis that does not answer is no error: the companion
    delivers the yield later, also to a new primary.
    """
    call = ledger.give_back(part, slices)
    ledger.telling[call] = None
    try:
        reply = yield from _told(call)
        ledger.delivered(call)
    except (StoreError, ConfigurationError) as failure:
        if call in ledger.telling:
            log.warning("yielding %s is left to the companion: %s", named(part), failure)
        return 0
    finally:
        ledger.keep_untold(call)
    if reply.outcome == "LOST":
        part.loss = loss(part, ledger.who, reply.ended, reply.reason, state_saved=reply.state_saved)
        ledger.close(part)
        note("lost", ledger.who, part, outcome=reply.ended, reason=reply.reason)
        raise part.loss
    note("given back" if slices else "yielded", ledger.who, part, slices, waiters=reply.waiters)
    return reply.waiters


def _told(call: Yield) -> Flow[YieldReply]:
    begun: float = yield Now()
    try:
        return (yield Call(call))
    except StoreTimeout:
        if (yield Now()) - begun > QUICK_S:
            raise
        return (yield Call(call))


def end_dropped(ledger: Ledger) -> None:
    """End the parts whose turn object nobody has any more; what is to be told is kept for the companion."""
    for part in list(ledger.open_parts.values()):
        if not part.dropped:
            continue
        if part.fences:
            log.warning("the turn on %s was dropped without a yield; it is yielded now", named(part))
        abandon(ledger, part)


def abandon(ledger: Ledger, part: Part) -> None:
    """End a part that is still open: the companion yields or cancels it."""
    if ledger.open_parts.get(part.lane) is not part:
        return
    if part.fences:
        ledger.keep(ledger.give_back(part))
    else:
        ledger.withdraw(part, "the acquire was abandoned")


def farewell(ledger: Ledger) -> Flow[None]:
    """The interpreter ends: yield what is held, cancel what waits, deliver what is kept, and say goodbye.

    Stops at the first call that fails: without Redis, agents and leases have to do it.
    """
    for part in list(ledger.open_parts.values()):
        abandon(ledger, part)
    for call in [*ledger.undelivered, *ledger.telling]:  # another thread may be at it: twice is once
        yield Call(call)
        ledger.delivered(call)
    if ledger.registered:
        yield Call(ledger.register_call(gone=True))
        ledger.registered = False
