"""When the companion does what."""

from __future__ import annotations

from slicelock.companion.schedule import HURRY_S, SETTLING_S, Schedule
from slicelock.retry import Retry


def test_the_first_heartbeat_is_due_at_once() -> None:
    assert Schedule(5.0).beat_due(0.0)


def test_heartbeats_follow_each_other() -> None:
    schedule = Schedule(5.0)
    schedule.beaten(100.0, soon=False)
    assert not schedule.beat_due(104.9)
    assert schedule.beat_due(105.0)


def test_an_answer_that_is_not_final_is_asked_for_again_soon() -> None:
    schedule = Schedule(5.0)
    schedule.beaten(100.0, soon=True)
    assert schedule.beat_due(100.0 + SETTLING_S)


def test_messages_hurry_it_but_not_without_pause() -> None:
    schedule = Schedule(5.0)
    schedule.beaten(100.0, soon=False)
    schedule.hurry(100.0)
    assert not schedule.beat_due(100.0)
    assert schedule.beat_due(100.0 + HURRY_S)


def test_an_answer_goes_out_at_once_but_not_while_redis_does_not_answer() -> None:
    schedule = Schedule(5.0)
    schedule.beaten(100.0, soon=False)
    schedule.at_once(100.001)
    assert schedule.beat_due(100.001)
    schedule.missed(101.0)
    due = schedule.beat_at
    schedule.at_once(101.0)
    assert schedule.beat_at == due > 101.0


def test_messages_do_not_hurry_it_while_redis_does_not_answer() -> None:
    schedule = Schedule(5.0)
    schedule.missed(100.0)
    due = schedule.beat_at
    schedule.hurry(100.0)
    assert schedule.beat_at == due > 100.0


def test_a_missed_heartbeat_is_repeated_sooner_than_the_next_one() -> None:
    schedule = Schedule(5.0)
    for _ in range(20):
        schedule.missed(100.0)
        assert 100.0 < schedule.beat_at <= 102.0
    schedule.beaten(100.0, soon=False)
    assert schedule.beat_at == 105.0


def test_retries_become_rarer() -> None:
    retry = Retry()
    pauses: list[float] = []
    for _ in range(10):
        retry.failed(0.0)
        pauses.append(retry.at)
    assert pauses[0] <= 0.1
    assert 1.0 <= pauses[-1] <= 2.0
    retry.succeeded()
    assert retry.at < 0
