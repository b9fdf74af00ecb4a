"""`Server` with SGLang's interface, whose servers end when they are told the wrong thing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from slicelock.hooks import Server
from tests.support.model_servers import Sglang
from tests.support.model_servers_frame import Fault
from tests.support.wait import wait_until

RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"
ALL = {"kv_cache", "weights", "cuda_graph"}


@pytest.fixture
def start() -> Iterator[Callable[..., Sglang]]:
    """Start servers that end with the test, and must not have ended before."""
    made: list[Sglang] = []
    with ExitStack() as stack:

        def make(**traits: object) -> Sglang:
            made.append(Sglang(**traits))  # type: ignore[arg-type]
            stack.enter_context(made[-1])
            return made[-1]

        yield make
        assert [server.dead for server in made] == [""] * len(made)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that stand still do so soon."""
    monkeypatch.setattr("slicelock.servers.sglang.SETTLING_S", 0.5)


def hook(*servers: Sglang, **options: object) -> Server:
    """A hook with little patience, and a framework that never releases anything itself."""
    given = {"kind": "sglang", "asleep": False, "drain": 0.5, "timeout": 0.5, "deadline": 2.0, **options}
    return Server(*(server.url for server in servers), **given)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what works


def test_a_server_is_paused_released_resumed_and_continued(start: Callable[..., Sglang]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    assert (server.released, server.paused) == (ALL, True)
    one.reload()
    assert (server.released, server.paused, server.weights) == (set(), False, "loaded")
    changing = [call for call in server.calls if "GET" not in call and "flush" not in call]
    assert changing == [
        f"POST {path}" for path in ("/pause_generation", RELEASE, RESUME, "/continue_generation")
    ]


def test_only_the_tags_that_were_released_are_resumed(start: Callable[..., Sglang]) -> None:
    server = start()
    server.released = {"weights"}
    one = hook(server, tags=["kv_cache"])
    one.offload()
    assert server.released == {"kv_cache", "weights"}
    one.reload()
    assert server.released == {"weights"}


def test_n15_releasing_twice_asks_once(start: Callable[..., Sglang]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    one.offload()
    one.reload()
    one.reload()
    assert (len(server.asked(RELEASE)), len(server.asked(RESUME))) == (1, 1)


def test_what_the_framework_has_released_stays_released(
    start: Callable[..., Sglang], caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    server.released = set(ALL)
    one = hook(server, asleep=lambda: bool(server.released))
    with caplog.at_level(logging.INFO, "slicelock"):
        one.offload()
    one.reload()
    assert server.released == ALL
    assert "has released its memory already; it is left so" in caplog.text


def test_what_the_framework_has_paused_stays_paused(start: Callable[..., Sglang]) -> None:
    server = start()
    server.paused = True
    one = hook(server)
    one.offload()
    one.reload()
    assert (server.released, server.paused) == (set(), True)
    assert not server.asked("/pause_generation") + server.asked("/continue_generation")


def test_requests_are_waited_for(start: Callable[..., Sglang]) -> None:
    server = start(running=1)
    one = hook(server, drain=10, deadline=20)
    offloading = threading.Thread(target=one.offload)
    offloading.start()
    wait_until(lambda: len(server.asked("/flush_cache")) > 1)
    assert not server.paused
    server.running = 0
    offloading.join()
    assert server.released == ALL
    assert {"mode": "in_place"} in server.bodies


def test_requests_that_take_too_long_leave_the_server_as_it_was(start: Callable[..., Sglang]) -> None:
    server = start(running=1)
    with pytest.raises(SnapshotFailed, match=r"still answers requests after 0\.5 s; it is left awake"):
        hook(server).offload()
    assert not server.asked(RELEASE) + server.asked("/pause_generation")


def test_requests_are_kept_when_asked_for(start: Callable[..., Sglang]) -> None:
    server = start(running=3)
    one = hook(server, mode="keep")
    one.offload()
    assert (server.waiting, server.released) == (3, ALL)
    one.reload()
    assert (server.running, server.released) == (3, set())


def test_requests_are_aborted_only_when_asked_for(start: Callable[..., Sglang]) -> None:
    server = start(running=3)
    hook(server, mode="abort").offload()
    assert (server.running, server.waiting, server.released) == (0, 0, ALL)


def test_old_versions_cannot_keep_requests(start: Callable[..., Sglang]) -> None:
    server = start(running=1, version="0.5.3.post1")
    with pytest.raises(SnapshotFailed, match=r"older than SGLang 0\.5\.6, which has no mode 'keep'"):
        hook(server, mode="keep").offload()
    assert not server.asked("/pause_generation")


def test_a_request_that_comes_at_the_last_moment_is_not_run_over(start: Callable[..., Sglang]) -> None:
    server = start()
    pause = server._paths["/pause_generation"]

    def late(asked: dict[str, object]) -> tuple[int, object]:
        answer = pause(asked)
        server.running = 1
        return answer

    server._paths["/pause_generation"] = late
    with pytest.raises(SnapshotFailed, match="is paused and still answers requests; it is left awake"):
        hook(server).offload()
    assert (server.paused, server.released) == (False, set())


def test_dropped_weights_are_pushed_between_weights_and_cache(start: Callable[..., Sglang]) -> None:
    server = start(backup=False)
    seen: list[set[str]] = []

    def push() -> None:
        seen.append(set(server.released))
        server.weights = "loaded"

    one = hook(server, reload=push)
    one.offload()
    assert server.weights == "dropped"
    one.reload()
    assert (seen, server.released, server.weights) == ([{"kv_cache"}], set(), "loaded")
    assert not server.paused


def test_pushing_is_not_asked_for_where_the_weights_were_kept(start: Callable[..., Sglang]) -> None:
    server, pushed = start(), list[int]()
    one = hook(server, reload=lambda: pushed.append(1))
    one.offload()
    one.reload()
    assert (server.weights, pushed) == ("loaded", [])


def test_the_cache_alone_can_be_released_without_a_backup(start: Callable[..., Sglang]) -> None:
    server = start(backup=False)
    one = hook(server, tags=["kv_cache"])
    one.offload()
    one.reload()
    assert (server.weights, server.released) == ("loaded", set())


# ---------------------------------------------------------------- what goes wrong


def test_weights_without_a_backup_are_not_lost(start: Callable[..., Sglang]) -> None:
    server = start(backup=False)
    with pytest.raises(
        SnapshotFailed, match="would lose its weights: start SGLang with --enable-weights-cpu"
    ):
        hook(server).offload()
    assert not server.asked(RELEASE) + server.asked("/pause_generation")


def test_a_server_without_memory_saver_is_named_with_the_remedy(start: Callable[..., Sglang]) -> None:
    with pytest.raises(SnapshotFailed, match="start SGLang with --enable-memory-saver"):
        hook(start(memory_saver=False)).offload()


def test_n15_one_of_three_fails_and_the_others_are_as_before(start: Callable[..., Sglang]) -> None:
    servers = [start() for _ in range(3)]
    servers[1].faults[RELEASE] = Fault(500, effect=False, body=b'{"error": "busy"}')
    with pytest.raises(SnapshotFailed, match=rf"{servers[1].url}: POST {RELEASE} was answered with 500"):
        hook(*servers).offload()
    for server in servers:
        assert (server.released, server.paused) == (set(), False)
    assert not servers[1].asked(RESUME)


def test_n15_one_of_three_is_gone(start: Callable[..., Sglang]) -> None:
    servers = [start() for _ in range(3)]
    servers[1].stop()
    with pytest.raises(SnapshotFailed, match=f"{servers[1].url}: GET /server_info failed"):
        hook(*servers).offload()
    assert [server.released for server in servers] == [set()] * 3


def test_n15_a_slow_release_is_not_asked_for_twice(
    start: Callable[..., Sglang], caplog: pytest.LogCaptureFixture
) -> None:
    server = start()
    server.faults[RELEASE] = Fault(late=1.0)
    one = hook(server, deadline=30)
    one.offload()
    assert "looking whether it was carried out" in caplog.text
    assert len(server.asked(RELEASE)) == 1
    wait_until(lambda: server.released == ALL)
    one.reload()
    assert server.released == set()


def test_n15_lost_answers_are_found_out(start: Callable[..., Sglang]) -> None:
    server = start()
    server.faults |= {RELEASE: Fault(drop=True), RESUME: Fault(drop=True)}
    one = hook(server)
    one.offload()
    one.reload()
    assert (len(server.asked(RELEASE)), len(server.asked(RESUME))) == (1, 1)
    assert (server.released, server.paused) == (set(), False)


def test_a_waking_that_stays_unanswered_is_found_out_later(start: Callable[..., Sglang]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    server.faults |= {RESUME: Fault(drop=True), "/server_info": Fault(drop=True)}
    with pytest.raises(RestoreFailed, match="could not be woken within 2 s"):
        one.reload()
    server.faults.clear()
    one.reload()
    assert (server.released, server.paused, len(server.asked(RESUME))) == (set(), False, 1)


def test_a_release_that_stays_unanswered_is_undone_later(
    start: Callable[..., Sglang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicelock.hooks.server.UNDO_S", 0.5)
    server, other = start(), start()
    release = server._paths[RELEASE]

    def then_hang(asked: dict[str, object]) -> tuple[int, object]:
        server.faults["/server_info"] = Fault(drop=True)
        return release(asked)  # type: ignore[arg-type]

    server._paths[RELEASE] = then_hang  # type: ignore[assignment]
    server.faults[RELEASE] = Fault(drop=True)
    one = hook(server, other, deadline=1.0)
    with pytest.raises(SnapshotFailed) as failed:
        one.offload()
    assert str(failed.value) == (
        f"{server.url}: it could not be put to sleep within 1 s; it could not be woken within 0.5 s"
    )
    assert (server.released, other.released) == (ALL, set())
    server.faults.clear()
    one.reload()
    assert (server.released, server.paused) == (set(), False)


def test_a_server_that_was_started_anew_is_not_resumed(start: Callable[..., Sglang]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    server.restart()
    one.reload()
    assert not server.asked(RESUME) + server.asked("/continue_generation")
    one.offload()
    one.reload()
    assert (server.released, server.paused) == (set(), False)


def test_a_server_that_is_gone_when_it_should_wake(start: Callable[..., Sglang]) -> None:
    server = start()
    one = hook(server)
    one.offload()
    server.stop()
    with pytest.raises(RestoreFailed, match="failed"):
        one.reload()


@pytest.mark.parametrize("body", [b"", b"<html>", b"3"])
def test_answers_that_make_no_sense_are_refused(start: Callable[..., Sglang], body: bytes) -> None:
    server = start()
    server.faults["/server_info"] = Fault(body=body)
    with pytest.raises(SnapshotFailed, match="was answered with what is no JSON object"):
        hook(server).offload()
    assert not server.asked(RELEASE)
