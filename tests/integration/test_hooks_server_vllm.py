"""`Server` with vLLM's interface: real sockets, and the faults that real servers have."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from slicelock.hooks import Server
from tests.support.model_servers import Vllm
from tests.support.model_servers_frame import Fault
from tests.support.wait import wait_until


@pytest.fixture
def start() -> Iterator[Callable[..., Vllm]]:
    """Start servers that end with the test."""
    with ExitStack() as stack:

        def make(**traits: object) -> Vllm:
            server = Vllm(**traits)  # type: ignore[arg-type]
            stack.enter_context(server)
            return server

        yield make


def hook(*servers: Vllm, **options: object) -> Server:
    """A hook with little patience."""
    given = {"drain": 0.5, "timeout": 0.5, "deadline": 2.0, **options}
    return Server(*(server.url for server in servers), **given)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what works


def test_a_server_sleeps_and_wakes(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    assert server.asleep == {"weights", "kv_cache"}
    assert server.asked("/sleep") == ["POST /sleep?level=1&mode=keep"]
    one.reload()
    assert (server.asleep, server.paused, server.weights) == (set(), False, "loaded")
    assert server.asked("/wake_up") == ["POST /wake_up"]


def test_nothing_is_asked_before_and_nothing_is_woken_that_was_not_put_to_sleep(
    start: Callable[..., Vllm],
) -> None:
    server = start()
    one = hook(server)
    assert not server.calls
    one.reload()
    assert not server.asked("/wake_up")


def test_going_to_sleep_twice_asks_once(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    one.offload()
    assert len(server.asked("/sleep")) == 1
    one.reload()
    one.reload()
    assert len(server.asked("/wake_up")) == 1


def test_a_server_that_the_framework_put_to_sleep_stays_asleep(
    start: Callable[..., Vllm], caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    server.asleep = {"kv_cache"}
    one = hook(server)
    with caplog.at_level(logging.INFO, "slicelock"):
        one.offload()
    one.reload()
    assert "sleeps or is paused already; it is left so" in caplog.text
    assert server.asleep == {"kv_cache"}
    assert not server.asked("/sleep") + server.asked("/wake_up")


def test_a_server_that_its_owner_woke_is_not_woken_again(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    server.asleep, server.paused = set(), False
    one.reload()
    assert not server.asked("/wake_up")
    one.offload()
    assert len(server.asked("/sleep")) == 2


@pytest.mark.parametrize(
    ("mode", "stats", "asked"),
    [
        ("wait", True, "keep"),  # they have been waited for, and one that comes now is kept
        ("wait", False, "wait"),  # only the server knows whether there are any
        ("keep", True, "keep"),
        ("abort", True, "abort"),
    ],
)
def test_the_mode_that_is_asked_for(start: Callable[..., Vllm], mode: str, stats: bool, asked: str) -> None:
    server = start(stats=stats)
    hook(server, mode=mode).offload()
    assert server.asked("/sleep") == [f"POST /sleep?level=1&mode={asked}"]


def test_requests_are_waited_for_and_never_aborted(start: Callable[..., Vllm]) -> None:
    server = start(running=2)
    one = hook(server, drain=10, deadline=20)
    offloading = threading.Thread(target=one.offload)
    offloading.start()
    wait_until(lambda: len(server.asked("/metrics")) > 1)
    assert not server.asked("/sleep")
    server.running = 0
    offloading.join()
    assert (server.asleep != set(), server.aborted) == (True, 0)


def test_requests_that_take_too_long_leave_the_server_awake(start: Callable[..., Vllm]) -> None:
    server = start(running=1)
    with pytest.raises(SnapshotFailed, match=r"still answers requests after 0\.5 s; it is left awake"):
        hook(server).offload()
    assert not server.asked("/sleep") + server.asked("/wake_up")


def test_requests_are_kept_when_asked_for(start: Callable[..., Vllm]) -> None:
    server = start(running=3)
    one = hook(server, mode="keep")
    one.offload()
    one.reload()
    assert (server.running, server.aborted) == (3, 0)


def test_old_versions_cannot_keep_requests(start: Callable[..., Vllm]) -> None:
    server = start(running=3, version=(0, 16))
    with pytest.raises(SnapshotFailed, match=r"older than vLLM 0\.17, which has no mode 'keep'; use 'wait'"):
        hook(server, mode="keep").offload()
    assert not server.asked("/sleep")


def test_a_request_at_the_last_moment_is_kept(start: Callable[..., Vllm]) -> None:
    server = start()
    sleep = server._paths["/sleep"]

    def late(asked: dict[str, object]) -> tuple[int, object]:
        server.running = 1
        return sleep(asked)  # type: ignore[arg-type]

    server._paths["/sleep"] = late  # type: ignore[assignment]
    hook(server).offload()
    assert (server.running, server.aborted, bool(server.asleep)) == (1, 0, True)


def test_without_statistics_the_server_waits_by_itself(start: Callable[..., Vllm]) -> None:
    server = start(stats=False)
    hook(server).offload()
    assert server.asleep


def test_level_2_fills_the_weights_before_the_cache_comes_back(start: Callable[..., Vllm]) -> None:
    server = start()
    seen: list[set[str]] = []

    def push() -> None:
        seen.append(set(server.asleep))
        server.weights = "loaded"

    one = hook(server, level=2, reload=push)
    one.offload()
    one.reload()
    assert seen == [{"kv_cache"}]
    assert server.asked("/wake_up") == ["POST /wake_up?tags=weights", "POST /wake_up?tags=kv_cache"]
    assert (server.weights, server.asleep) == ("loaded", set())


def test_level_2_fills_all_servers_at_once(start: Callable[..., Vllm]) -> None:
    servers = [start() for _ in range(3)]
    seen: list[list[set[str]]] = []

    async def push() -> None:
        seen.append([set(server.asleep) for server in servers])

    one = hook(*servers, level=2, reload=push)
    one.offload()
    one.reload()
    assert seen == [[{"kv_cache"}] * 3]
    assert [server.asleep for server in servers] == [set()] * 3


def test_a_method_of_the_workers_fills_the_weights(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server, level=2, reload="reload_weights")
    one.offload()
    one.reload()
    assert (server.weights, server.asleep) == ("loaded", set())


def test_filling_that_fails_goes_on_where_it_stopped(start: Callable[..., Vllm]) -> None:
    server, tries = start(), iter([True, False])

    def push() -> None:
        if next(tries):
            raise OSError("the trainer is gone")

    one = hook(server, level=2, reload=push)
    one.offload()
    with pytest.raises(RestoreFailed, match="filling its weights failed: OSError: the trainer is gone"):
        one.reload()
    assert server.asleep == {"kv_cache"}
    one.reload()
    assert server.asked("/wake_up") == ["POST /wake_up?tags=weights", "POST /wake_up?tags=kv_cache"]
    assert server.asleep == set()


def test_answers_in_pieces_are_understood(start: Callable[..., Vllm]) -> None:
    server = start(chunked=True)
    one = hook(server)
    one.offload()
    one.reload()
    assert len(server.asked("/sleep")) == 1


def test_the_key_goes_with_every_question(start: Callable[..., Vllm]) -> None:
    server = start()
    hook(server, token="hunter2").offload()
    assert server.headers["Authorization"] == "Bearer hunter2"


def test_no_proxy_is_asked(start: Callable[..., Vllm], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    hook(server := start()).offload()
    assert server.asleep


async def test_it_can_be_called_where_a_loop_runs(start: Callable[..., Vllm]) -> None:
    hook(server := start()).offload()
    assert server.asleep


# ---------------------------------------------------------------- what goes wrong


def three(start: Callable[..., Vllm]) -> list[Vllm]:
    return [start() for _ in range(3)]


def awake_again(*servers: Vllm) -> None:
    """They were asked to sleep once, and to wake once."""
    for server in servers:
        assert (server.asleep, server.paused) == (set(), False)
        assert (len(server.asked("/sleep")), len(server.asked("/wake_up"))) == (1, 1)


def test_one_of_three_answers_with_an_error(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.faults["/sleep"] = Fault(500, effect=False, body=b"CUDA error: out of memory")
    with pytest.raises(SnapshotFailed) as failed:
        hook(first, second, third).offload()
    assert str(failed.value) == (
        f"{second.url}: POST /sleep was answered with 500: 'CUDA error: out of memory'"
    )
    awake_again(first, third)
    assert not second.asked("/wake_up")


def test_one_of_three_never_answers(start: Callable[..., Vllm]) -> None:
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


def test_one_of_three_says_yes_and_stays_awake(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.faults["/sleep"] = Fault(effect=False)
    with pytest.raises(
        SnapshotFailed, match=f"{second.url}: it answers that it was put to sleep, but is awake"
    ):
        hook(first, second, third, deadline=5).offload()
    awake_again(first, third)


def test_one_of_three_is_gone(start: Callable[..., Vllm]) -> None:
    first, second, third = three(start)
    second.stop()
    begun = time.monotonic()
    with pytest.raises(SnapshotFailed, match=f"{second.url}: GET /is_sleeping failed: .*Connect"):
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


def test_a_slow_answer_is_not_asked_for_twice(
    start: Callable[..., Vllm], caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    server.faults["/sleep"] = Fault(late=1.0)  # twice as long as one answer may take
    hook(server, deadline=30).offload()
    assert "was not answered within 0.5 s; looking whether it was carried out" in caplog.text
    assert (len(server.asked("/sleep")), server.second_sleeps) == (1, 0)


def test_a_slow_waking_is_not_asked_for_twice(start: Callable[..., Vllm]) -> None:
    server = start()
    one = hook(server, deadline=30)
    one.offload()
    server.faults["/wake_up"] = Fault(late=1.0)
    one.reload()
    assert (len(server.asked("/wake_up")), server.asleep) == (1, set())


def test_an_answer_within_the_time_is_no_fault(start: Callable[..., Vllm]) -> None:
    server = start()
    server.faults["/sleep"] = Fault(late=0.3)
    hook(server).offload()
    assert server.asleep


def test_an_answer_that_is_lost_is_found_out(start: Callable[..., Vllm]) -> None:
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
