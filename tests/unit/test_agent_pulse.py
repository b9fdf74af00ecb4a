"""Beats: when they are sent, what goes with them, and that nothing stops them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from slicelock_agent.mailbox import Mailbox
from slicelock_agent.pulse import Facts, Pulse
from slicelock_agent.result import Result
from slicelock_agent.tally import Tally

from slicelock.codec import ScriptCall
from slicelock.errors import SchemaMismatch, SlicelockError, StoreTimeout, StoreUnavailable
from slicelock.wire import AskWanted, BeatReply, Results
from tests.support.rig import Rig
from tests.support.wait import wait_until_async


class Redis:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.is_open = True
        self.opens: list[SlicelockError | None] = []
        self.waiting: list[tuple[dict[str, Any], Callable[[Any], None]]] = []

    async def open(self) -> None:
        failure = self.opens.pop(0) if self.opens else None
        if failure:
            raise failure
        self.is_open = True

    def send(self, command: ScriptCall[Any], take: Callable[[Any], None]) -> None:
        said = {"look": command.slice} if isinstance(command, AskWanted) else json.loads(command.argv()[-1])
        self.waiting.append(({"results": said} if isinstance(command, Results) else said, take))

    def answer(self, reply: BeatReply | SlicelockError | None = None, **facts: Any) -> dict[str, Any]:
        """Answer the oldest beat; what it said."""
        report, take = self.waiting.pop(0)
        take(reply or BeatReply("OK", epoch=1, **{"wanted": {"s": {"state": "free"}}, **facts}))
        return report


def switching(run: str, fence: int, **facts: Any) -> dict[str, Any]:
    given = {"state": "switching", "fence": str(fence), "run": run, "lane": "main", "k": "1", "known": "1"}
    return {"s": given | facts}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig(tmp_path) as made:
        await made.idle()
        yield made


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
def pulse(rig: Rig, redis: Redis) -> Pulse:
    made = Pulse(redis, Facts("n1", "boot", "1", 10_000, 0.05), rig.registry, Mailbox())
    made.switchers["s"] = rig.switcher
    rig.switcher._tell, rig.switcher._post = made.tell, made.wake
    return made


async def test_a_hint_leads_to_ready_without_waiting(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    assert redis.answer(wanted=switching("a", 10))["results"] == []
    [result] = redis.waiting[0][0]["results"]  # sent before this test could wait for anything
    assert (result["slice"], result["fence"], result["outcome"], result["moved"]) == ("s", 10, "READY", False)
    assert redis.waiting[0][0]["slices"]["s"]["run"] == "a"


def known(*runs: str) -> dict[str, Any]:
    return {run: {"rev": "1", "job": "j", "processes": {}} for run in runs}


async def test_a_hint_leads_to_a_look_at_its_slice(pulse: Pulse, redis: Redis, rig: Rig) -> None:
    pulse.wake()
    redis.answer(runs=known("a", "b"))
    for run, fence in (("a", 10), ("b", 20), ("b", 30)):
        pulse.heed(b"grant s")
        assert redis.answer(wanted=switching(run, fence)) == {"look": "s"}
        told = redis.answer(results=["OK"])
        assert list(told) == ["results"], "a READY goes out by itself"
        assert (told["results"][0]["outcome"], told["results"][0]["fence"]) == ("READY", fence)
        assert redis.waiting == []
        assert rig.states() == {run: "loaded"}
        await wait_until_async(lambda: redis.waiting)
        assert redis.answer(wanted=switching(run, fence, state="held"))["slices"]["s"]["fence"] == fence


@pytest.mark.parametrize(
    "hint", [b"", b"grant", b"grant t", b"grant s 20 a/main/1", b"revoke s", b"run a", b"\xff s"]
)
async def test_any_other_hint_leads_to_a_beat(pulse: Pulse, redis: Redis, rig: Rig, hint: bytes) -> None:
    pulse.wake()
    redis.answer(wanted=switching("b", 10), runs=known("a", "b"))
    redis.answer(wanted=switching("b", 10, state="held"), results=["OK"])
    pulse.heed(hint)
    assert "slices" in redis.answer(wanted=switching("b", 10, state="held"))
    assert rig.states() == {"b": "loaded"}


@pytest.mark.parametrize(
    "found",
    [
        {"wanted": switching("new", 20)},
        {"wanted": switching("a", 20), "epoch": 2},
        {"wanted": switching("a", 20, settling="1")},
        {"wanted": switching("b", 10, state="held")},
        {"wanted": {"s": {"known": "0"}}},
        {"wanted": {}},
        {"wanted": {"s": {"run": "a", "state": "switching", "fence": "x", "known": "1"}}},
        {"wanted": {"s": "nonsense"}},
        {"wanted": "nonsense"},
    ],
)
async def test_what_a_look_cannot_do_is_left_to_a_beat(
    pulse: Pulse, redis: Redis, rig: Rig, found: dict[str, Any]
) -> None:
    pulse.wake()
    redis.answer(wanted=switching("b", 10), runs=known("a", "b"))
    redis.answer(wanted=switching("b", 10, state="held"), results=["OK"])
    pulse.heed(b"grant s")
    redis.answer(BeatReply("OK", **{"epoch": 1, **found}))
    assert redis.waiting[0][0]["results"] == []
    assert "slices" in redis.waiting[0][0]
    assert rig.states() == {"b": "loaded"}


async def test_a_look_that_fails_is_made_up_for_by_a_beat(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    redis.answer(runs=known("a"))
    pulse.heed(b"grant s")
    redis.answer(StoreTimeout("no answer"))
    assert "slices" in redis.answer(wanted=switching("a", 20))
    assert redis.answer()["results"][0]["fence"] == 20


async def test_a_look_begins_what_moves_state(pulse: Pulse, redis: Redis, rig: Rig) -> None:
    pulse.wake()
    redis.answer(wanted=switching("b", 10), runs=known("a", "b"))
    redis.answer(wanted=switching("b", 10, state="held"), results=["OK"])
    rig.write(b"state of b")
    pulse.heed(b"grant s")
    redis.answer(wanted=switching("a", 20))
    assert redis.answer(wanted=switching("a", 20))["results"] == []
    await rig.idle()
    assert rig.states() == {"a": "loaded", "b": "saved"}


async def test_a_hint_during_a_beat_leads_to_another_beat(pulse: Pulse, redis: Redis) -> None:
    """The answer under way may be older than the hint."""
    pulse.wake()
    pulse.heed(b"grant s")
    redis.answer(runs=known("a"))
    assert "slices" in redis.answer(wanted=switching("a", 20))
    assert redis.answer()["results"][0]["fence"] == 20


async def test_a_result_in_haste_that_is_stale_is_made_up_for(pulse: Pulse, redis: Redis, rig: Rig) -> None:
    pulse.wake()
    redis.answer(runs=known("a", "b"))
    pulse.heed(b"grant s")
    redis.answer(wanted=switching("a", 20))
    redis.answer(results=["STALE"])
    assert redis.answer(wanted=switching("b", 30))["results"] == []
    assert redis.answer()["results"][0]["run"] == "b"
    assert rig.states() == {"b": "loaded"}


async def test_results_in_haste_of_a_new_epoch_have_everything_told(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    redis.answer(runs=known("a"))
    pulse.heed(b"grant s")
    redis.answer(wanted=switching("a", 20))
    redis.answer(BeatReply("OK", epoch=2, results=["OK"]))
    assert redis.answer(BeatReply("OK", epoch=2, wanted=switching("a", 20)))["slices"]["s"]["fence"] == 20
    pulse.wake()
    assert redis.answer()["known"] == {"a": ""}, "numbers may be given out twice"


async def test_one_beat_at_a_time_and_one_more_for_all_that_came_meanwhile(
    pulse: Pulse, redis: Redis
) -> None:
    for _ in range(5):
        pulse.wake()
    assert len(redis.waiting) == 1
    redis.answer()
    assert len(redis.waiting) == 1
    redis.answer()
    assert redis.waiting == []


async def test_beats_go_on_with_nothing_new(pulse: Pulse, redis: Redis) -> None:
    task = asyncio.create_task(pulse.run())
    for _ in range(3):
        await wait_until_async(lambda: redis.waiting)
        redis.answer()
    task.cancel()


async def test_who_watches_is_told_how_a_turn_was_found(rig: Rig, redis: Redis) -> None:
    found: list[str] = []
    tally = Tally()
    tally.wished = found.append  # type: ignore[method-assign]
    pulse = Pulse(redis, Facts("n1", "boot", "1", 10_000, 0.05), rig.registry, Mailbox(), tally)
    pulse.switchers["s"] = rig.switcher
    task = asyncio.create_task(pulse.run())
    await wait_until_async(lambda: redis.waiting)
    redis.answer(wanted=switching("a", 10))
    assert found == ["poll"], "no message had come"
    task.cancel()
    while redis.waiting:
        redis.answer(wanted=switching("a", 10, state="held"))
    assert found == ["poll"], "each turn counts once"
    pulse.wake()
    redis.answer(wanted=switching("b", 20))
    assert found == ["poll", "message"]


@pytest.mark.parametrize("failure", [StoreTimeout("lost"), StoreUnavailable("away"), SchemaMismatch("other")])
async def test_a_result_is_sent_until_it_has_arrived(
    pulse: Pulse, redis: Redis, failure: SlicelockError
) -> None:
    result = Result("s", 10, "FAILED", "a", "evict", "why")
    pulse.tell(result)
    assert redis.answer(failure)["results"][0]["reason"] == "why"
    assert redis.waiting == [], "not at once: Redis has a problem"
    pulse.wake()
    assert redis.answer()["results"][0]["fence"] == 10
    pulse.wake()
    assert redis.answer()["results"] == []


async def test_a_newer_result_takes_the_place_of_an_older_one(pulse: Pulse, redis: Redis) -> None:
    pulse.tell(Result("s", 10, "READY", "a"))
    pulse.tell(Result("s", 20, "READY", "b"))
    redis.answer()
    assert [result["fence"] for result in redis.answer()["results"]] == [20]
    assert redis.waiting == []


async def test_an_end_is_told_until_it_has_arrived(pulse: Pulse, redis: Redis, rig: Rig) -> None:
    rig.registry.exits.add(("a", "p"))
    pulse.wake()
    assert redis.answer(StoreTimeout("lost"))["exits"] == [{"run": "a", "process": "p"}]
    pulse.wake()
    redis.answer()
    assert not rig.registry.exits


@pytest.mark.parametrize(
    "wanted", [{}, {"s": None}, {"s": []}, {"s": {"fence": "x"}}, {"s": {"fence": []}}, [], None, 7]
)
async def test_an_answer_that_makes_no_sense_stops_nothing(
    pulse: Pulse, redis: Redis, wanted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pulse.wake()
    redis.answer(wanted=wanted)
    assert caplog.records
    pulse.wake()
    redis.answer(wanted=switching("a", 10))
    assert redis.answer()["results"][0]["outcome"] == "READY"


async def test_runs_that_make_no_sense_stop_nothing(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    redis.answer(wanted=switching("a", 10), runs={"a": {"rev": "1", "processes": {"#": 3}}, "b": None})
    assert redis.answer()["results"][0]["outcome"] == "READY"


async def test_an_outage_of_redis_is_known(
    pulse: Pulse, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr("slicelock_agent.pulse.time", clock)

    def answered_at(now: float) -> float:
        clock.now = now
        pulse.wake()
        redis.answer()
        return pulse.in_touch_since

    assert pulse.in_touch_since == 100.0
    assert [answered_at(now) for now in (101.0, 101.1, 101.2)] == [101.0] * 3
    clock.now = 130.0
    assert pulse.in_touch_since == 130.0
    assert [answered_at(now) for now in (131.0, 131.1)] == [131.0] * 2


async def test_an_unknown_slice_is_noted_and_asks_for_nothing(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    redis.answer(wanted={"s": {"known": "0"}})
    assert pulse.unknown == {"s"}
    pulse.wake()
    redis.answer(wanted=switching("a", 10))
    assert pulse.unknown == set()


async def test_a_new_epoch_has_everything_told_again(pulse: Pulse, redis: Redis, rig: Rig) -> None:
    pulse.wake()
    redis.answer(wanted=switching("a", 10), runs={"a": {"rev": "7", "job": "j", "processes": {}}})
    assert redis.answer()["known"] == {"a": "7"}
    pulse.wake()
    redis.answer(BeatReply("OK", epoch=2, wanted=switching("a", 10, settling="1")))
    pulse.wake()
    assert redis.answer()["known"] == {"a": ""}


@pytest.mark.parametrize("sign", [{"settling": "1"}, {"known": "0"}])
async def test_so_has_a_new_life_in_which_the_number_is_given_out_again(
    pulse: Pulse, redis: Redis, sign: dict[str, Any]
) -> None:
    pulse.wake()
    redis.answer(wanted=switching("a", 10), runs={"a": {"rev": "1", "job": "j", "processes": {}}})
    assert redis.answer()["known"] == {"a": "1"}
    pulse.wake()
    redis.answer(wanted=switching("a", 10, **sign))
    pulse.wake()
    told = {"a": {"rev": "1", "job": "j", "processes": {}}}
    assert redis.answer(wanted=switching("a", 10, **sign), runs=told)["known"] == {"a": ""}
    pulse.wake()
    assert redis.answer(wanted=switching("a", 10, **sign))["known"] == {"a": "1"}


async def test_a_switch_that_a_new_epoch_asks_for_again_is_answered_again(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    redis.answer(wanted=switching("a", 10))
    redis.answer(wanted=switching("a", 10))
    assert redis.waiting == [], "Redis has it: nothing more to say"
    pulse._regular = True
    pulse.wake()
    redis.answer(BeatReply("OK", epoch=2, wanted=switching("a", 10)))
    assert redis.answer()["results"][0]["outcome"] == "READY"
    assert redis.waiting == []


async def test_redis_away_is_said_once_and_waited_for(
    pulse: Pulse, redis: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock_agent.pulse.RETRY_S", 0.01)
    redis.is_open, redis.opens = False, [StoreUnavailable("Redis is away.")] * 5
    assert redis.waiting == []
    task = asyncio.create_task(pulse.run())
    await wait_until_async(lambda: redis.waiting)
    pulse._hear(BeatReply("OK", epoch=1), [], [], None)  # results in haste come through, and no beat
    redis.answer(StoreUnavailable("Redis is away."))
    assert [record.message for record in caplog.records] == ["Redis is away. Turns go on."]
    task.cancel()


async def test_more_to_reap_leads_to_another_beat(pulse: Pulse, redis: Redis) -> None:
    pulse.wake()
    redis.answer(more=True)
    await wait_until_async(lambda: redis.waiting)
    redis.answer()


async def test_all_results_can_be_waited_for(pulse: Pulse, redis: Redis) -> None:
    await pulse.told_all()
    pulse.tell(Result("s", 10, "READY", "a"))
    waiting = asyncio.create_task(pulse.told_all())
    await asyncio.sleep(0)
    assert not waiting.done()
    redis.answer()
    while redis.waiting:
        redis.answer()
    await waiting


async def test_a_slice_with_broken_devices_does_not_hold_up_the_others(
    pulse: Pulse, redis: Redis, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        at, wanted = rig.switcher.at, rig.switcher.wanted

        def shown(self) -> dict[str, Any]:
            return rig.switcher.shown()

        def want(self, wanted: Any, *, again: bool = False) -> None:
            raise OSError("the device is gone")

    pulse.switchers = {"broken": Broken(), "s": rig.switcher}  # type: ignore[dict-item]
    for fence in (10, 20):
        pulse.wake()
        redis.answer(wanted={"broken": {"state": "free"}, **switching("a", fence)})
        assert redis.answer(wanted={"broken": {}, "s": {}})["results"][0]["fence"] == fence
    said = [record.message for record in caplog.records if "broken" in record.message]
    assert said == ["slice broken: the device is gone"]
