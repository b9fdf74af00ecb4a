"""Heartbeats: what they say, and what their answers mean."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slicelock import errors
from slicelock.protocol import Ledger, News, Part, absorb, acquire, beat, next_deadline, overdue
from slicelock.protocol.ledger import Done
from slicelock.wire import AcquireReply, RenewReply
from tests.support.flows import Hand, known, part, who


def holding(*, agentless: bool = False, slices: tuple[str, ...] = ("a",)) -> tuple[Ledger, Part]:
    ledger, held = Ledger(who()), part(*slices)
    reply = AcquireReply("HELD", fences=dict.fromkeys(slices, 7), lease_ms=60_000, agentless=agentless)
    Hand([known(), reply]).drive(acquire(ledger, held))
    return ledger, held


def waiting() -> tuple[Ledger, Part]:
    ledger, asked = Ledger(who()), part("a")
    ledger.open(asked)
    ledger.number(asked)
    asked.asked = asked.spent = True
    return ledger, asked


def hear(ledger: Ledger, *parts: dict[str, Any], registered: bool = True, sent: float = 2000.0) -> News:
    return absorb(ledger, beat(ledger), RenewReply("OK", parts=list(parts), registered=registered), sent)


def test_says_everything_that_this_process_has() -> None:
    ledger, _ = holding(slices=("a", "b"))
    ledger.give_back(ledger.open_parts["main"], ("a",))
    ledger.done["other"] = Done(4, gave_up=False)
    report = beat(ledger, [{"n": "9"}]).call.report
    assert report == {
        "parts": [
            {
                **{"lane": "main", "k": 1, "member": "0", "members": 1, "slices": ("a", "b")},
                **{"phase": "", "priority": 0, "fences": {"a": 7, "b": 7}, "yielded": ("a",)},
            }
        ],
        "done": {"other": {"k": 4, "member": "0", "members": 1, "gave_up": False}},
        "answers": [{"n": "9"}],
    }


def test_says_nothing_of_a_wish_that_redis_has_not_seen() -> None:
    ledger = Ledger(who())
    ledger.open(part("a"))
    assert beat(ledger).call.report["parts"] == []


def test_an_answer_extends_the_lease_from_before_the_call() -> None:
    ledger, held = holding()
    held.unconfirmed = True
    hear(ledger, {"state": "held", "wanted": "1"}, sent=2000.0)
    assert (held.deadline, held.unconfirmed, held.wanted) == (2060.0, False, True)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [("expired", errors.Expired), ("revoked", errors.Revoked), ("superseded", errors.Superseded)],
)
def test_a_lost_turn_is_told(outcome: str, kind: type[errors.LeaseLost]) -> None:
    ledger, held = holding()
    lost = {"state": "LOST", "outcome": outcome, "reason": "because", "state_saved": "1"}
    news = hear(ledger, lost)
    assert news.lost == [held]
    assert type(held.loss) is kind
    assert held.loss is not None
    assert held.loss.state_saved
    assert "because" in str(held.loss)
    assert not ledger.open_parts


@pytest.mark.parametrize("state", ["UNKNOWN", "switching"])
def test_a_turn_that_a_new_epoch_has_not_confirmed_is_asked_about_again(state: str) -> None:
    ledger, held = holding()
    news = hear(ledger, {"state": state})
    assert news.ask_again
    assert held.loss is None
    assert ledger.open_parts == {"main": held}


@pytest.mark.parametrize("state", ["held", "LOST", "UNKNOWN"])
def test_a_waiting_part_asks_for_itself(state: str) -> None:
    ledger, asked = waiting()
    news = hear(ledger, {"state": state})
    assert news.look == [asked]
    assert asked.loss is None


@pytest.mark.parametrize("state", ["gathering", "queued", "switching"])
def test_a_waiting_part_goes_on_waiting(state: str) -> None:
    ledger, _ = waiting()
    assert hear(ledger, {"state": state}).look == []


def test_an_answer_about_a_turn_that_is_over_meanwhile_changes_nothing() -> None:
    ledger, held = holding()
    sent_beat = beat(ledger)
    ledger.give_back(held)
    lost = {"state": "LOST", "outcome": "yielded"}
    news = absorb(ledger, sent_beat, RenewReply("OK", parts=[lost], registered=True), 2000.0)
    assert (news.lost, held.loss) == ([], None)


def test_an_answer_about_an_earlier_number_changes_nothing() -> None:
    ledger, asked = waiting()
    sent_beat = beat(ledger)
    ledger.number(asked, 2)
    news = absorb(ledger, sent_beat, RenewReply("OK", parts=[{"state": "LOST"}], registered=True), 2000.0)
    assert news.look == []


def test_a_process_that_redis_forgot_registers_again() -> None:
    ledger, _ = holding()
    assert not ledger.outdated
    hear(ledger, {"state": "held"}, registered=False)
    assert ledger.outdated


class TestDeadline:
    def test_ends_a_turn_without_agents(self) -> None:
        ledger, held = holding(agentless=True)
        assert next_deadline(ledger) == 1060.0
        assert overdue(ledger, 1059.9, "late") == ([], [])
        assert overdue(ledger, 1060.0, "late") == ([held], [])
        assert isinstance(held.loss, errors.Expired)
        assert "The lease ran out: late." in str(held.loss)
        assert not ledger.open_parts

    def test_makes_a_turn_with_agents_unconfirmed_once(self) -> None:
        ledger, held = holding()
        assert overdue(ledger, 1060.0, "late") == ([], [held])
        assert held.unconfirmed
        assert held.loss is None
        assert overdue(ledger, 1070.0, "late") == ([], [])
        assert next_deadline(ledger) == math.inf

    def test_is_not_for_who_waits(self) -> None:
        ledger, _ = waiting()
        assert next_deadline(ledger) == math.inf
        assert overdue(ledger, 10_000.0, "late") == ([], [])
