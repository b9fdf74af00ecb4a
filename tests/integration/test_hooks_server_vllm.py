"""`Server` with vLLM's interface: real sockets, and the faults that real servers have."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from tests.support.model_servers import Vllm
from tests.support.vllm_hook import hook, start
from tests.support.wait import wait_until

__all__ = ["start"]  # a fixture


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


def test_n15_going_to_sleep_twice_asks_once(start: Callable[..., Vllm]) -> None:
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


@pytest.mark.parametrize(
    ("mode", "stats", "words"),
    [
        ("wait", False, r"does not wait by itself.* requests: start it without --disable-log-stats, or use"),
        ("keep", False, r"has no mode 'keep'; use 'wait'"),
        ("abort", True, r"aborts no requests and would end by them; use 'wait'"),
    ],
)
def test_old_versions_are_not_put_to_sleep_over_running_requests(
    start: Callable[..., Vllm], mode: str, stats: bool, words: str
) -> None:
    server = start(running=1, version=(0, 16), stats=stats)
    with pytest.raises(SnapshotFailed, match=rf"older than vLLM 0\.17, which {words}"):
        hook(server, mode=mode).offload()
    assert not server.asked("/sleep")


def test_old_versions_sleep_when_no_request_runs(start: Callable[..., Vllm]) -> None:
    for mode, stats in (("wait", True), ("abort", True), ("abort", False)):
        server = start(version=(0, 16), stats=stats)
        hook(server, mode=mode).offload()
        assert server.asleep


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
