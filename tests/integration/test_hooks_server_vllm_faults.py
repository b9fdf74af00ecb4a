"""`Server` with vLLM's interface: the faults that real servers have."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from tests.support.model_servers import Vllm
from tests.support.model_servers_frame import Fault
from tests.support.vllm_hook import hook, start

__all__ = ["start"]  # a fixture


def three(start: Callable[..., Vllm]) -> list[Vllm]:
    return [start() for _ in range(3)]


def awake_again(*servers: Vllm) -> None:
    """They were asked to sleep once, and to wake once."""
    for server in servers:
        assert (server.asleep, server.paused) == (set(), False)
        assert (len(server.asked("/sleep")), len(server.asked("/wake_up"))) == (1, 1)


def test_n15_one_of_three_answers_with_an_error(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.faults["/sleep"] = Fault(500, effect=False, body=b"CUDA error: out of memory")
    with pytest.raises(SnapshotFailed) as failed:
        hook(first, second, third).offload()
    assert str(failed.value) == (
        f"{second.url}: POST /sleep was answered with 500: 'CUDA error: out of memory'"
    )
    awake_again(first, third)
    assert not second.asked("/wake_up")


def test_n15_one_of_three_never_answers(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.faults["/sleep"] = Fault(effect=False, late=60)
    one = hook(first, second, third)
    with pytest.raises(SnapshotFailed, match=rf"{second.url}: it could not be put to sleep within 2 s"):
        one.offload()
    awake_again(first, third)
    assert (len(second.asked("/sleep")), second.asked("/wake_up")) == (1, [])
    second.faults.clear()
    one.offload()
    assert all(server.asleep for server in (first, second, third))


def test_n15_one_of_three_says_yes_and_stays_awake(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.faults["/sleep"] = Fault(effect=False)
    with pytest.raises(
        SnapshotFailed, match=f"{second.url}: it answers that it was put to sleep, but is awake"
    ):
        hook(first, second, third, deadline=5).offload()
    awake_again(first, third)


UNREACHED = r"GET /is_sleeping failed: it cannot be reached \(.*Connect.*\); start the server, or correct"


def test_n15_one_of_three_is_gone(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.stop()
    begun = time.monotonic()
    with pytest.raises(SnapshotFailed, match=f"{second.url}: {UNREACHED}"):
        hook(first, second, third, deadline=30).offload()
    assert time.monotonic() - begun < 10
    awake_again(first, third)


def test_one_that_was_asleep_already_is_not_woken_when_another_fails(start: Callable[..., Vllm]) -> None:
    first, second = start(), start()
    first.asleep = {"weights", "kv_cache"}
    second.faults["/sleep"] = Fault(500, effect=False)
    with pytest.raises(SnapshotFailed):
        hook(first, second).offload()
    assert first.asleep == {"weights", "kv_cache"}
    assert not first.asked("/sleep") + first.asked("/wake_up")


def test_n15_a_slow_answer_is_not_asked_for_twice(
    start: Callable[..., Vllm], caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    server.faults["/sleep"] = Fault(late=1.0)  # twice as long as one answer may take
    hook(server, deadline=30).offload()
    assert "was not answered within 0.5 s; looking whether it was carried out" in caplog.text
    assert (len(server.asked("/sleep")), server.second_sleeps) == (1, 0)


def test_n15_a_slow_waking_is_not_asked_for_twice(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server, deadline=30)
    one.offload()
    server.faults["/wake_up"] = Fault(late=1.0)
    one.reload()
    assert (len(server.asked("/wake_up")), server.asleep) == (1, set())


def test_n15_an_answer_within_the_time_is_no_fault(start: Callable[..., Vllm]) -> None:
    server = start()
    server.faults["/sleep"] = Fault(late=0.3)
    hook(server).offload()
    assert server.asleep


def test_n15_an_answer_that_is_lost_is_found_out(start: Callable[..., Vllm]) -> None:
    server = start()
    server.faults["/sleep"] = Fault(drop=True)
    one = hook(server)
    one.offload()
    assert (len(server.asked("/sleep")), server.second_sleeps) == (1, 0)
    one.reload()
    assert server.asleep == set()


@pytest.mark.parametrize("body", [b"", b"yes", b"[]", b'{"is_sleeping": "no"}', b'{"sleeping": true}'])
def test_answers_that_make_no_sense_are_refused(start: Callable[..., Vllm], body: bytes) -> None:
    server = start()
    server.faults["/is_sleeping"] = Fault(body=body)
    with pytest.raises(SnapshotFailed, match=r"GET /is_sleeping was answered with"):
        hook(server).offload()
    assert not server.asked("/sleep")


def test_a_server_without_sleep_mode_is_named_with_the_remedy(start: Callable[..., Vllm]) -> None:
    with pytest.raises(
        SnapshotFailed, match="start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1"
    ):
        hook(start(endpoints=False)).offload()


def test_a_server_that_asks_for_a_key_is_named_with_the_remedy(start: Callable[..., Vllm]) -> None:
    server = start()
    server.faults["/is_sleeping"] = Fault(401, body=b"Unauthorized")
    with pytest.raises(SnapshotFailed, match="token="):
        hook(server).offload()


def test_a_server_that_was_started_anew_is_awake(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    server.restart()
    one.reload()
    assert not server.asked("/wake_up")
    one.offload()
    assert server.asleep


def test_a_new_server_that_the_framework_put_to_sleep_stays_asleep(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    server.restart()
    server.asleep = {"weights", "kv_cache"}
    one.offload()
    one.reload()
    assert server.asleep
    assert not server.asked("/wake_up")


def test_a_server_that_is_gone_when_it_should_wake(start: Callable[..., Vllm]) -> None:
    server, other = start(), start()
    one = hook(server, other)
    one.offload()
    server.stop()
    with pytest.raises(RestoreFailed, match=f"{server.url}: GET /is_sleeping failed"):
        one.reload()
    assert other.asleep == set()
    server.start()
    one.reload()


def test_a_server_that_hangs_up_is_named(start: Callable[..., Vllm]) -> None:
    server = start()
    server.faults["/is_sleeping"] = Fault(drop=True)
    with pytest.raises(SnapshotFailed, match="GET /is_sleeping failed: the connection was closed"):
        hook(server).offload()
