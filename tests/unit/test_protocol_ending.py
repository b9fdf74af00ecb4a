"""The end of a turn and of a process, driven by hand."""

from __future__ import annotations

import logging

import pytest

from slicelock import errors
from slicelock.codec import Reply
from slicelock.errors import StoreTimeout, StoreUnavailable
from slicelock.flow import Call
from slicelock.protocol import Ledger, Part, acquire, end_dropped, farewell, give_back
from slicelock.protocol.ledger import Done
from slicelock.wire import AcquireReply, Cancel, Register, Yield, YieldReply
from tests.support.flows import Hand, known, part, who

YIELDED = YieldReply("YIELDED", waiters=3)


def holding(*slices: str) -> tuple[Ledger, Part]:
    """A ledger with a turn on these slices."""
    ledger, held = Ledger(who()), part(*slices)
    fences = dict.fromkeys(held.wish.slices, 7)
    Hand([known(), AcquireReply("HELD", fences=fences, lease_ms=60_000)]).drive(acquire(ledger, held))
    return ledger, held


def test_tells_how_many_wait() -> None:
    ledger, held = holding("a")
    hand = Hand([YIELDED])
    assert hand.drive(give_back(ledger, held)) == 3
    assert hand.calls == [Yield("r1", "main", 1, "0")]
    assert (ledger.open_parts, ledger.done, ledger.undelivered) == ({}, {"main": Done(1, gave_up=False)}, {})


def test_some_slices_leave_the_turn_open() -> None:
    ledger, held = holding("a", "b")
    hand = Hand([YieldReply("PARTIAL"), YIELDED])
    hand.drive(give_back(ledger, held, ("a",)))
    assert held.slices_left == ("b",)
    assert ledger.open_parts == {"main": held}
    hand.drive(give_back(ledger, held, ("b",)))
    assert hand.calls[-1] == Yield("r1", "main", 1, "0", ())
    assert not ledger.open_parts


def test_a_connection_that_was_closed_meanwhile_costs_one_more_try() -> None:
    ledger, held = holding("a")
    hand = Hand([StoreTimeout("closed"), YIELDED])
    assert hand.drive(give_back(ledger, held)) == 3
    assert not ledger.undelivered


@pytest.mark.parametrize("failure", [StoreUnavailable("away"), errors.StoreError("full")])
def test_is_kept_while_redis_is_away(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    ledger, held = holding("a")
    with caplog.at_level(logging.WARNING, "slicelock"):
        assert Hand([failure]).drive(give_back(ledger, held)) == 0
    assert list(ledger.undelivered) == [Yield("r1", "main", 1, "0")]
    assert "left to the companion" in caplog.text
    assert ledger.done == {"main": Done(1, gave_up=False)}


def test_a_slow_failure_is_not_tried_again() -> None:
    ledger, held = holding("a")
    hand = Hand([StoreTimeout("slow")], call_s=5.0)
    hand.drive(give_back(ledger, held))
    assert len(hand.calls) == 1
    assert len(ledger.undelivered) == 1


def test_is_kept_when_interrupted() -> None:
    ledger, held = holding("a")
    with pytest.raises(KeyboardInterrupt):
        Hand([KeyboardInterrupt()]).drive(give_back(ledger, held))
    assert len(ledger.undelivered) == 1


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("expired", errors.Expired),
        ("revoked", errors.Revoked),
        ("superseded", errors.Superseded),
        ("holder_died", errors.LeaseLost),
    ],
)
def test_of_a_lost_turn_is_an_error(outcome: str, kind: type[errors.LeaseLost]) -> None:
    ledger, held = holding("a")
    reply = YieldReply("LOST", reason="it was late", ended=outcome, state_saved=True)
    with pytest.raises(kind, match="it was late") as caught:
        Hand([reply]).drive(give_back(ledger, held))
    assert type(caught.value) is kind
    assert caught.value.state_saved
    assert (caught.value.fence, caught.value.slice, caught.value.run) == (7, "a", "r1")
    assert held.loss is caught.value


def test_a_dropped_turn_is_yielded_by_the_companion(caplog: pytest.LogCaptureFixture) -> None:
    ledger, held = holding("a")
    end_dropped(ledger)
    assert not ledger.undelivered  # nothing is known of an owner
    held.owner = lambda: None
    end_dropped(ledger)
    assert list(ledger.undelivered) == [Yield("r1", "main", 1, "0")]
    assert "dropped without a yield" in caplog.text
    assert not ledger.open_parts


def test_a_dropped_wish_is_cancelled_by_the_companion() -> None:
    ledger, waiting = Ledger(who()), part("a")
    ledger.open(waiting)
    ledger.number(waiting)
    waiting.asked = waiting.spent = True
    waiting.owner = lambda: None
    end_dropped(ledger)
    [kept] = ledger.undelivered
    assert isinstance(kept, Cancel)


def test_farewell_yields_cancels_and_says_goodbye() -> None:
    ledger, _ = holding("a")
    waiting = part("b", lane="other")
    ledger.open(waiting)
    ledger.number(waiting)
    waiting.asked = waiting.spent = True
    hand = Hand([YIELDED, Reply("CANCELLED"), known()])
    hand.drive(farewell(ledger))
    assert [type(call) for call in hand.calls] == [Yield, Cancel, Register]
    assert isinstance(hand.calls[-1], Register)
    assert hand.calls[-1].gone
    assert (ledger.open_parts, ledger.undelivered) == ({}, {})


def test_farewell_delivers_what_another_thread_is_telling(caplog: pytest.LogCaptureFixture) -> None:
    """Else its goodbye might come first, and end the turn of all members."""
    ledger, held = holding("a")
    telling = give_back(ledger, held)
    next(telling)
    assert telling.send(0.0) == Call(Yield("r1", "main", 1, "0"))
    assert not ledger.undelivered  # the companion leaves it to its caller, who wants to know how many wait
    hand = Hand([YIELDED, known()])
    hand.drive(farewell(ledger))
    assert [type(call) for call in hand.calls] == [Yield, Register]
    with pytest.raises(StopIteration):
        telling.throw(errors.StoreError("closed"))
    assert not ledger.undelivered
    assert not caplog.text


def test_farewell_stops_at_the_first_failure() -> None:
    ledger, _ = holding("a")
    with pytest.raises(StoreUnavailable):
        Hand([StoreUnavailable()]).drive(farewell(ledger))


def test_a_process_that_never_registered_says_no_goodbye() -> None:
    hand = Hand([])
    hand.drive(farewell(Ledger(who())))
    assert not hand.calls
