"""When an agent may serve a node that is said to have another one: against a store that answers by script."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from slicelock_agent import introducing
from slicelock_agent.introducing import introduce

from slicelock.errors import ConfigurationError, StoreTimeout, StoreUnavailable
from slicelock.wire import Beat, BeatReply

MINE = Beat("n1", "boot2:j@me", "v", 0, {})
OK = BeatReply("OK")


def other(beat_ms: int, *, epoch: int = 1, heard_ms: int = 100, by: str = "boot1:k@it") -> BeatReply:
    return BeatReply("OTHER", epoch=epoch, by=by, heard_ms=heard_ms, beat_ms=beat_ms)


class Scripted:
    """A store whose answers are known beforehand."""

    def __init__(self, *answers: BeatReply | Exception) -> None:
        self.answers, self.asked = deque(answers), list[Beat]()

    async def run(self, command: Any) -> Any:
        self.asked.append(command)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introducing, "LOOK_S", 0.0)
    monkeypatch.setattr(introducing, "AGAIN_S", 0.0)


def meet(*answers: BeatReply | Exception, before: tuple[str, ...] = ()) -> list[Beat]:
    """Introduce itself; what it has asked."""
    store = Scripted(*answers)
    asyncio.run(introduce(store, MINE, before, 1.0))
    assert not store.answers
    return store.asked


def test_one_newer_beat_may_have_been_under_way_and_two_are_a_life() -> None:
    meet(other(5), other(5), other(6), other(6), OK)
    with pytest.raises(ConfigurationError, match="host it"):
        meet(other(5), other(6), other(7))


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_redis_with_older_data_is_no_other_agents_beat(epoch: int) -> None:
    """What it says was heard of late, or long ago, or is another beat."""
    meet(other(50, heard_ms=900), other(51), other(20, epoch=epoch, heard_ms=20), other(21, epoch=epoch), OK)
    meet(other(50), other(51), other(60, epoch=2), other(61, epoch=2), OK)


def test_beats_of_two_others_are_not_added() -> None:
    meet(other(1), other(2), other(3, by="boot1:l@it"), other(4, by="boot1:l@it"), OK)


def test_a_redis_that_goes_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "slicelock_agent"):
        meet(other(5), StoreUnavailable("It is away."), StoreTimeout("Late."), other(5), OK)
    assert [line.message for line in caplog.records if "Waiting" in line.message] == [
        "It is away. Waiting for it."
    ]


def test_whoever_waits_says_so_again_and_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1_000, 4))
    monkeypatch.setattr(introducing, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    with caplog.at_level(logging.INFO, "slicelock_agent"):
        meet(*[other(5)] * 9, OK)
    assert 2 <= len([line for line in caplog.records if "waiting" in line.message]) < 9


def test_the_end_of_its_own_earlier_boot_is_told_once_it_beats_no_more() -> None:
    """A disk that was copied whole has the same journal: the other machine still beats."""
    was = "boot1:j@anything"
    before = ("boot0:j", "boot1:j")
    asked = meet(other(5, by=was, heard_ms=1000), other(5, by=was, heard_ms=1001), OK, OK, before=before)
    assert asked == [MINE, MINE, replace(MINE, agent=was, version="", report={"ended": True}), MINE]
    with pytest.raises(ConfigurationError):
        meet(*[other(at, by=was) for at in (5, 6, 7)], before=before)
    assert meet(other(5, heard_ms=9_000), OK, before=before) == [MINE, MINE]
