"""The acquire flow, driven by hand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from slicelock import errors
from slicelock.codec import Reply, ScriptCall
from slicelock.errors import ConfigurationError, StoreError, StoreTimeout, StoreUnavailable
from slicelock.protocol import Ledger, Part, acquire
from slicelock.protocol.ledger import Done
from slicelock.wire import Acquire, AcquireReply, Cancel, Register
from tests.support.flows import Hand, known, part, registered, who


def held(*slices: str) -> AcquireReply:
    return AcquireReply("HELD", fences=dict.fromkeys(slices, 7), lease_ms=60_000, moved=True)


HELD = held("a")
QUEUED = AcquireReply("QUEUED", position=2, reason="a is held by other (run r2)")
SWITCHING = AcquireReply("SWITCHING")
DONE = Reply("CANCELLED")


def ask(*answers: Any, ledger: Ledger | None = None, **wish: Any) -> tuple[Hand, Ledger, Part]:
    """Ask for a turn on slice a; the process is registered first."""
    ledger = ledger or Ledger(who())
    asked, hand = part(**wish), Hand([known(), *answers])
    hand.drive(acquire(ledger, asked))
    return hand, ledger, asked


def refused(kind: type[Exception], *answers: Any, **wish: Any) -> tuple[Hand, Ledger, Exception]:
    """As `ask`, when the flow raises."""
    ledger, hand = registered(**wish.pop("who", {})), Hand([known(), *answers])
    with pytest.raises(kind) as caught:
        hand.drive(acquire(ledger, part(**wish)))
    return hand, ledger, caught.value


def numbers(hand: Hand) -> list[int]:
    return [call.k for call in hand.calls if isinstance(call, Acquire)]


def test_registers_then_asks_and_holds() -> None:
    hand, ledger, asked = ask(HELD)
    assert hand.scripts == ["register", "acquire"]
    assert (asked.k, asked.fences, asked.moved) == (1, {"a": 7}, True)
    assert ledger.open_parts == {"main": asked}


def test_the_lease_counts_from_before_the_question() -> None:
    ledger, asked, hand = registered(), part(), Hand([known(), HELD], call_s=0.5)
    hand.drive(acquire(ledger, asked))
    assert asked.deadline == 1000.0 + 60.0


def test_waits_for_messages_between_questions() -> None:
    hand, _, asked = ask(QUEUED, QUEUED, HELD)
    assert hand.scripts == ["register", "acquire", "acquire", "acquire"]
    assert hand.waits == [3.0, 3.0]
    assert asked.waited_s == 6.0


def test_asks_again_at_the_next_deadline_that_redis_named() -> None:
    hand, _, _ = ask(AcquireReply("QUEUED", next_ms=400), HELD)
    assert hand.waits == [pytest.approx(0.405)]


def test_a_message_ends_the_wait() -> None:
    ledger, hand = registered(), Hand([known(), QUEUED, HELD], messages=lambda: True)
    hand.drive(acquire(ledger, part()))
    assert hand.now == 1000.0


def test_the_same_question_is_repeated_after_a_lost_reply() -> None:
    hand, _, _ = ask(StoreTimeout(), StoreUnavailable(), HELD, ledger=registered())
    assert numbers(hand) == [1, 1, 1]
    assert all(0 < wait <= 1 for wait in hand.waits)


def test_a_password_that_is_refused_later_is_waited_for() -> None:
    hand, _, _ = ask(ConfigurationError("refused"), HELD, ledger=registered())
    assert numbers(hand) == [1, 1]


def test_redis_that_was_never_reached_is_an_error_at_once() -> None:
    ledger, hand = Ledger(who()), Hand([StoreUnavailable("no Redis")])
    with pytest.raises(StoreUnavailable, match="no Redis"):
        hand.drive(acquire(ledger, part()))
    assert (hand.scripts, ledger.open_parts, ledger.undelivered) == (["register"], {}, {})


def test_an_answer_that_refuses_the_call_is_an_error_at_once() -> None:
    hand, ledger, _ = refused(StoreError, StoreError("at its memory limit"), DONE)
    assert hand.scripts == ["register", "acquire", "cancel"]
    assert not ledger.undelivered


class TestTimeout:
    def test_withdraws_the_request(self) -> None:
        hand, ledger, error = refused(errors.AcquireTimeout, *[QUEUED] * 3, DONE, timeout=5.0, phase="train")
        assert hand.scripts == ["register", *["acquire"] * 3, "cancel"]  # the last one at the end of the time
        assert "within 5 s" in str(error)
        assert "phase train" in str(error)
        assert "held by other" in str(error)
        assert (ledger.open_parts, ledger.undelivered) == ({}, {})

    def test_does_not_count_switching(self) -> None:
        hand, _, asked = ask(QUEUED, *[SWITCHING] * 20, HELD, timeout=4.0)
        assert asked.waited_s == 3.0
        assert hand.now == 1000.0 + 3.0 + 60.0

    def test_counts_a_switch_that_is_held_up(self) -> None:
        blocked = AcquireReply("SWITCHING", reason="node n1 is silent")
        hand, _, error = refused(errors.AcquireTimeout, SWITCHING, *[blocked] * 3, DONE, timeout=5.0)
        assert "switching: node n1 is silent" in str(error)
        assert hand.scripts[-1] == "cancel"

    def test_counts_again_when_a_switch_is_given_back(self) -> None:
        refused(errors.AcquireTimeout, QUEUED, SWITCHING, QUEUED, QUEUED, DONE, timeout=4.0)

    def test_of_zero_asks_once(self) -> None:
        hand, _, _ = refused(errors.AcquireTimeout, QUEUED, DONE, timeout=0.0)
        assert hand.waits == []

    def test_ends_while_redis_is_away(self) -> None:
        hand, ledger, error = refused(errors.AcquireTimeout, *[StoreUnavailable("away")] * 30, timeout=3.0)
        assert "away" in str(error)
        assert hand.scripts[-1] == "cancel"
        assert [call.script for call in ledger.undelivered] == ["cancel"]


class TestWithdrawal:
    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
    @pytest.mark.parametrize("at", [1, 2, 3])
    def test_with_one_call(self, interrupt: type[BaseException], at: int) -> None:
        answers: list[Any] = [known(), QUEUED, QUEUED, QUEUED]
        answers[at:] = [interrupt(), DONE]
        ledger, hand = registered(), Hand(answers)
        with pytest.raises(interrupt):
            hand.drive(acquire(ledger, part()))
        assert hand.scripts[-1] == "cancel"
        assert (ledger.open_parts, ledger.undelivered) == ({}, {})

    def test_left_to_the_companion_when_the_call_fails(self) -> None:
        ledger, hand = registered(), Hand([known(), KeyboardInterrupt(), StoreTimeout()])
        with pytest.raises(KeyboardInterrupt):
            hand.drive(acquire(ledger, part()))
        [kept] = ledger.undelivered
        assert isinstance(kept, Cancel)
        assert kept.k == 1

    def test_left_to_the_companion_when_interrupted_again(self) -> None:
        ledger, hand = registered(), Hand([known(), KeyboardInterrupt(), KeyboardInterrupt()])
        with pytest.raises(KeyboardInterrupt):
            hand.drive(acquire(ledger, part()))
        assert [call.script for call in ledger.undelivered] == ["cancel"]

    def test_left_to_the_companion_when_the_generator_is_closed(self) -> None:
        ledger = registered()
        flow = acquire(ledger, part())
        step = next(flow)
        while getattr(step, "call", None) is None or step.call.script != "acquire":  # type: ignore[union-attr]
            script = getattr(getattr(step, "call", None), "script", "")
            step = flow.send(known() if script == "register" else 1.0)
        flow.close()
        assert [call.script for call in ledger.undelivered] == ["cancel"]
        assert not ledger.open_parts

    def test_needs_no_call_before_the_first_question(self) -> None:
        ledger, hand = registered(), Hand([KeyboardInterrupt()])
        with pytest.raises(KeyboardInterrupt):
            hand.drive(acquire(ledger, part()))
        assert hand.scripts == ["register"]
        assert not ledger.undelivered


class TestEnded:
    @pytest.mark.parametrize("outcome", ["expired", "superseded"])
    def test_asks_for_the_next_number_and_keeps_its_wait(self, outcome: str) -> None:
        hand, _, asked = ask(QUEUED, AcquireReply("ENDED", ended=outcome, newest=1), HELD)
        assert numbers(hand) == [1, 1, 2]
        assert isinstance(hand.calls[-1], Acquire)
        assert hand.calls[-1].waited_ms == 3000
        assert asked.k == 2

    def test_a_turn_of_fewer_slices_is_not_taken(self) -> None:
        whole = AcquireReply("HELD", fences={"a": 9, "b": 3}, lease_ms=60_000)
        ledger, asked, hand = registered(), part("a", "b"), Hand([known(), QUEUED, HELD, whole])
        hand.drive(acquire(ledger, asked))
        assert numbers(hand) == [1, 1, 2]  # to ask for the next one is to be done with this one
        assert asked.fences == {"a": 9, "b": 3}

    def test_follows_the_others_to_the_newest_number(self) -> None:
        hand, _, _ = ask(AcquireReply("ENDED", ended="expired", newest=4), HELD)
        assert numbers(hand) == [1, 4]

    @pytest.mark.parametrize(
        ("outcome", "kind"),
        [
            ("failed", errors.SwitchFailed),
            ("cancelled", errors.Cancelled),
            ("revoked", errors.Cancelled),
            ("holder_died", errors.NotGranted),
        ],
    )
    def test_is_an_error_with_the_reason(self, outcome: str, kind: type[Exception]) -> None:
        hand, ledger, error = refused(kind, AcquireReply("ENDED", ended=outcome, reason="member 1 withdrew"))
        assert type(error) is kind
        assert "member 1 withdrew" in str(error)
        assert hand.scripts == ["register", "acquire"]  # it is over: nothing to cancel
        assert ledger.done == {"main": Done(1, gave_up=True)}

    def test_a_reason_that_is_a_sentence_ends_once(self) -> None:
        _, _, error = refused(
            errors.SwitchFailed, AcquireReply("ENDED", ended="failed", reason="Full. Free some.")
        )
        assert str(error).endswith("could not be switched: Full. Free some.")


class TestRefusals:
    @pytest.mark.parametrize(
        ("reply", "kind", "says"),
        [
            (AcquireReply("BUSY", reason="a is held by j2"), errors.Busy, "a is held by j2"),
            (AcquireReply("NO_SUCH_SLICE", slice="a"), errors.UnknownSlice, "no slice a"),
            (AcquireReply("QUEUE_FULL", slice="a"), errors.QueueFull, "queue of slice a is full"),
            (AcquireReply("RUN_LOST", slice="a", reason="node n1"), errors.RunLost, "lost its device state"),
            (AcquireReply("LATE"), errors.Mismatch, "begun without member 0"),
            (
                AcquireReply("MISMATCH", reason="others want b"),
                errors.Mismatch,
                "others want b, not a with 1",
            ),
        ],
    )
    def test_say_what_and_leave_nothing(self, reply: AcquireReply, kind: type[Exception], says: str) -> None:
        hand, ledger, error = refused(kind, reply)
        assert type(error) is kind
        assert says in str(error)
        assert hand.scripts == ["register", "acquire"]
        assert (ledger.open_parts, ledger.undelivered) == ({}, {})

    @pytest.mark.parametrize("outcome", ["NO_SUCH_SLICE", "QUEUE_FULL", "RUN_LOST"])
    def test_of_a_request_that_was_not_opened_give_its_number_back(self, outcome: str) -> None:
        _, ledger, _ = refused(errors.NotGranted, AcquireReply(outcome, slice="a"))
        hand = Hand([HELD])
        hand.drive(acquire(ledger, part()))
        assert numbers(hand) == [1]

    def test_of_a_request_that_was_open_withdraw_it(self) -> None:
        lost = AcquireReply("RUN_LOST", slice="a", reason="node n1")
        hand, ledger, _ = refused(errors.RunLost, QUEUED, lost, DONE)
        assert hand.scripts == ["register", "acquire", "acquire", "cancel"]
        assert ledger.done == {"main": Done(1, gave_up=True)}

    def test_members_that_disagree_end_the_request_for_those_who_gather(self) -> None:
        reply = AcquireReply("MISMATCH", reason="another member asked for b", missing=1)
        hand, _, _ = refused(errors.Mismatch, reply, DONE)
        assert hand.scripts == ["register", "acquire", "cancel"]

    def test_name_the_launcher_when_members_were_forgotten(self) -> None:
        _, _, error = refused(errors.Mismatch, AcquireReply("LATE"), who={"launched": 8})
        assert "SLICELOCK_MEMBERS" in str(error)
        assert "auto" in str(error)

    def test_a_taken_member_is_tried_for_a_while(self) -> None:
        taken = AcquireReply("TAKEN", by="boot:1:9:9", heard_ms=100)
        hand, ledger, error = refused(errors.MemberTaken, *[taken] * 16)
        assert hand.now - 1000.0 == pytest.approx(15.0)
        assert "boot:1:9:9" in str(error)
        assert "cancel" not in hand.scripts  # that request is the other process's
        assert not ledger.undelivered

    def test_a_taken_member_may_become_free(self) -> None:
        hand, _, _ = ask(AcquireReply("TAKEN", by="x"), AcquireReply("TAKEN", by="x"), HELD)
        assert numbers(hand) == [1, 1, 1]

    def test_a_slice_that_was_known_may_be_declared_again(self) -> None:
        unknown = AcquireReply("NO_SUCH_SLICE", slice="a")
        hand, ledger, asked = ask(QUEUED, *[unknown] * 4, QUEUED, HELD)
        assert numbers(hand) == [1] * 7
        assert asked.fences == {"a": 7}
        ledger.give_back(asked)
        again = Hand([unknown, HELD])
        again.drive(acquire(ledger, part()))
        assert numbers(again) == [2, 2]

    def test_a_slice_that_stays_unknown_is_an_error_after_a_while(self) -> None:
        unknown = AcquireReply("NO_SUCH_SLICE", slice="a")

        def answer(call: ScriptCall) -> Reply:
            return DONE if isinstance(call, Cancel) else unknown

        hand, ledger, error = refused(errors.UnknownSlice, QUEUED, *[answer] * 60)
        assert 15.0 <= hand.now - 1003.0 <= 16.0
        assert "no slice a" in str(error)
        assert hand.scripts[-1] == "cancel"  # it may be there still
        assert not ledger.undelivered

    def test_without_waiting_an_unknown_slice_is_an_error_at_once(self) -> None:
        _, ledger, held = ask(HELD)
        ledger.give_back(held)
        hand = Hand([AcquireReply("NO_SUCH_SLICE", slice="a")])
        with pytest.raises(errors.UnknownSlice):
            hand.drive(acquire(ledger, part(wait=False)))

    def test_without_waiting_a_lost_reply_is_an_error(self) -> None:
        hand, _, _ = refused(StoreTimeout, StoreTimeout("lost"), DONE, wait=False)
        assert hand.scripts == ["register", "acquire", "cancel"]


class TestNumbers:
    def test_the_first_turn_goes_on_after_the_newest(self) -> None:
        hand = Hand([known(main={"k": "4", "state": "ended", "joined": []}), HELD])
        hand.drive(acquire(Ledger(who()), part()))
        assert numbers(hand) == [5]

    @pytest.mark.parametrize(("joined", "k"), [(["1"], 4), (["0", "1"], 5)])
    def test_the_first_turn_joins_one_that_gathers_without_this_member(
        self, joined: list[str], k: int
    ) -> None:
        hand = Hand([known(main={"k": 4, "state": "gathering", "joined": joined}), HELD])
        hand.drive(acquire(Ledger(who(members=2)), part()))
        assert numbers(hand) == [k]

    def test_each_lane_counts_for_itself_and_asks_where_it_stands(self) -> None:
        ledger = Ledger(who())
        hand = Hand([known(), HELD, known(rollout={"k": 8, "state": "ended", "joined": []}), held("b")])
        hand.drive(acquire(ledger, part()))
        hand.drive(acquire(ledger, part("b", lane="rollout")))
        assert hand.scripts == ["register", "acquire", "register", "acquire"]
        assert [(call.lane, call.k) for call in hand.calls if isinstance(call, Acquire)] == [
            ("main", 1),
            ("rollout", 9),
        ]

    def test_a_new_slice_is_registered(self) -> None:
        ledger = Ledger(who())
        hand = Hand([known(), HELD, known(), held("a", "b")])
        first = part("a")
        hand.drive(acquire(ledger, first))
        ledger.give_back(first)
        hand.drive(acquire(ledger, part("a", "b")))
        registers = [call for call in hand.calls if isinstance(call, Register)]
        assert [call.slices for call in registers] == [("a",), ("a", "b")]

    def test_a_lane_that_holds_is_refused_and_keeps_its_turn(self) -> None:
        _, ledger, held = ask(HELD)
        hand = Hand([])
        with pytest.raises(errors.Holding, match="holds a turn on a"):
            hand.drive(acquire(ledger, part("b")))
        assert ledger.open_parts == {"main": held}
        assert not ledger.undelivered


def test_says_once_a_minute_why_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    gathering = AcquireReply("GATHERING", missing=2, joined=("1",))
    with caplog.at_level(logging.WARNING, "slicelock"):
        ask(*[gathering] * 41, HELD, ledger=Ledger(who(members=3)))
    assert len(caplog.messages) == 2
    assert "for 60 s: missing of 3 members: 0 2" in caplog.messages[0]


def test_says_what_holds_a_switch_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "slicelock"):
        ask(*[AcquireReply("SWITCHING", reason="node n1 is silent")] * 21, HELD)
    [said] = caplog.messages
    assert "for 60 s: switching: node n1 is silent" in said


def test_names_those_who_are_here_when_members_have_names(caplog: pytest.LogCaptureFixture) -> None:
    gathering = AcquireReply("GATHERING", missing=1, joined=("driver",))
    with caplog.at_level(logging.WARNING, "slicelock"):
        ask(*[gathering] * 21, HELD, ledger=Ledger(who(members=2)))
    assert "1 of 2 members missing; here are driver" in caplog.messages[0]
