"""A grant that no replica has confirmed, driven by hand."""

from __future__ import annotations

from typing import Any

import pytest

from slicelock import errors
from slicelock.codec import Reply
from slicelock.errors import NotReplicated, StoreTimeout
from slicelock.protocol import Ledger, Part, acquire
from slicelock.wire import Acquire, AcquireReply, Cancel
from tests.support.flows import Hand, known, part, registered

HELD = AcquireReply("HELD", fences={"a": 7}, lease_ms=60_000, agentless=True)
QUEUED = AcquireReply("QUEUED", position=1)
DONE = Reply("CANCELLED")


def ask(ledger: Ledger, *answers: Any, **wish: Any) -> tuple[Hand, Part]:
    """Ask for a turn on slice a."""
    asked, hand = part(**wish), Hand([known(), *answers])
    hand.drive(acquire(ledger, asked))
    return hand, asked


def numbers(hand: Hand) -> list[int]:
    return [call.k for call in hand.calls if isinstance(call, Acquire)]


def test_is_taken_back_and_the_next_one_asked_for() -> None:
    ledger = registered()
    hand, asked = ask(ledger, QUEUED, NotReplicated("0 of 1."), DONE, HELD)
    assert hand.scripts == ["register", "acquire", "acquire", "cancel", "acquire"]
    assert numbers(hand) == [1, 1, 2]
    assert (asked.k, asked.fences) == (2, {"a": 7})
    last = hand.calls[-1]
    assert isinstance(last, Acquire) and last.waited_ms >= 3000  # its place in the queue is kept
    assert not ledger.undelivered


def test_that_could_not_be_taken_back_is_left_to_the_companion() -> None:
    ledger = registered()
    hand, asked = ask(ledger, NotReplicated(), StoreTimeout(), HELD)
    assert [(type(call), getattr(call, "k", 0)) for call in ledger.undelivered] == [(Cancel, 1)]
    assert (asked.k, numbers(hand)) == (2, [1, 2])


def test_with_several_members_is_only_asked_for_again() -> None:
    hand, asked = ask(registered(members=2), NotReplicated(), HELD)
    assert (hand.scripts, numbers(hand)) == (["register", "acquire", "acquire"], [1, 1])
    assert asked.fences


def test_that_stays_so_is_a_timeout_that_says_so() -> None:
    with pytest.raises(errors.AcquireTimeout, match="0 of 1 replicas"):
        ask(registered(), *[NotReplicated("0 of 1 replicas."), DONE] * 30, timeout=3.0)


def test_without_waiting_is_no_grant() -> None:
    ledger, hand = registered(), Hand([known(), NotReplicated("0 of 1."), DONE])
    with pytest.raises(errors.NotGranted, match=r"0 of 1\."):
        hand.drive(acquire(ledger, part(wait=False)))
    assert hand.scripts[-1] == "cancel"
    assert not ledger.open_parts
