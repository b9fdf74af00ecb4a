"""`slicelock exporter` on a live pool: what it serves, and that it outlives Redis."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.errors import ConfigurationError
from slicelock.events import Event
from slicelock.exits import ExitCode
from slicelock.metrics import serving
from slicelock.metrics.exporter import Exporter
from slicelock.metrics.leases import Leases
from slicelock.metrics.stream import StreamMetrics
from slicelock.picture import Picture
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Acquire, Declare
from tests.cli.conftest import Call
from tests.cli.programs import program
from tests.cli.test_render import HOLDER, PICTURE, SLICE
from tests.support.metrics_page import get, samples
from tests.support.wait import wait_until
from tests.support.world import World


@contextmanager
def exporting(settings: StoreSettings) -> Iterator[int]:
    """An exporter; its port."""
    with closing(Exporter(settings, ("127.0.0.1", 0), lambda line: None)) as made:
        yield made.server.port


@pytest.fixture
def port(slicelock_env: dict[str, str]) -> Iterator[int]:
    """An exporter of the test's pool, which follows the events."""
    with exporting(StoreSettings.load()) as made:
        yield made


def counted(port: int, name: str, value: float) -> None:
    wait_until(lambda: samples(port).get(name) == value, what=f"{name} to be {value}")


def test_turns_are_counted_and_their_state_is_shown(world: World, port: int) -> None:
    world.declare("s")
    counted(port, "slicelock_exporter_outages_total{}", 0)
    a, b = world.member("a"), world.member("b")
    assert (a.ask("s").outcome, b.ask("s").outcome) == ("HELD", "QUEUED")
    seen = samples(port)
    assert seen["slicelock_up{}"] == 1
    assert seen["slicelock_slice_state{slice=s,state=held}"] == 1
    assert seen["slicelock_slice_state{slice=s,state=free}"] == 0
    assert seen["slicelock_queue_depth_requests{slice=s}"] == 1
    assert seen[f"slicelock_slice_holder{{job={a.job},slice=s}}"] == 1
    assert 0 < seen["slicelock_lease_remaining_seconds{slice=s}"] <= 60
    a.yield_()
    counted(port, f"slicelock_turns_total{{job={a.job},outcome=yielded,slice=s}}", 1)
    counted(port, f"slicelock_turn_wait_seconds_count{{job={b.job},slice=s}}", 1)
    assert samples(port)[f"slicelock_turn_duration_seconds_count{{job={a.job},slice=s}}"] == 1


@pytest.mark.usefixtures("promtool")
def test_promtool_has_nothing_to_say(world: World, port: int) -> None:
    world.declare("s")
    a = world.member("a")
    a.ask("s")
    a.yield_()
    counted(port, f"slicelock_turns_total{{job={a.job},outcome=yielded,slice=s}}", 1)
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=get(port, "/metrics")[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_health(port: int) -> None:
    assert get(port, "/healthz") == (200, "ok\n")
    assert get(port, "/readyz") == (200, "ok\n")
    assert get(port, "/nonesuch")[0] == 404


def test_redis_may_go_and_come_back(own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server(appendonly=True)
    settings = StoreSettings(redis_url=server.url, pool="p", store_timeout=1)  # type: ignore[arg-type]
    with exporting(settings) as port:
        wait_until(lambda: samples(port)["slicelock_up{}"] == 1)
        server.kill()
        wait_until(lambda: get(port, "/readyz")[0] == 503)
        seen = samples(port)
        assert seen["slicelock_up{}"] == 0 and "slicelock_epoch{}" not in seen
        assert "cannot be reached" in get(port, "/readyz")[1] and get(port, "/healthz")[0] == 200
        server.start()
        wait_until(lambda: get(port, "/readyz")[0] == 200)
        wait_until(lambda: samples(port)["slicelock_up{}"] == 1)
        assert samples(port)["slicelock_exporter_outages_total{}"] == 1


def test_a_lease_that_is_renewed_late_is_told_once() -> None:
    leases = Leases()

    def look(left_s: int, k: int = 3) -> list[str]:
        turn = replace(HOLDER, id=f"r1/main/{k}", lease_left_ms=left_s * 1000)
        return leases.late(replace(PICTURE, slices=(replace(SLICE, holder=turn),)))

    assert [look(left) for left in (60, 55, 31)] == [[], [], []]
    assert [look(left) for left in (29, 20)] == [["trainers"], []]
    assert [look(left) for left in (60, 29)] == [[], ["trainers"]]
    assert look(10, k=4) == [], "another turn, with a lease of its own"
    assert leases.late(replace(PICTURE, slices=())) == []


HOLDS = """
import time, slicelock
with slicelock.Slice("s").turn(phase="train"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_process_that_cannot_renew_is_seen_late_and_then_lost(port: int) -> None:
    """A real client, stopped: nobody but the pool can tell what became of its renewals."""
    store = Store(StoreSettings.load())
    store.run(Declare("s", {}))
    env = {**os.environ, "SLICELOCK_LEASE": "3", "SLICELOCK_RENEW": "0.3"}
    late, lost = (
        "slicelock_lease_renewals_late_total{slice=s}",
        "slicelock_turns_total{job=job,outcome=expired,slice=s}",
    )
    with subprocess.Popen([sys.executable, "-c", HOLDS], env=env, stdout=subprocess.PIPE, text=True) as job:
        try:
            assert job.stdout is not None and job.stdout.readline() == "held\n"
            wait_until(lambda: samples(port)["slicelock_lease_remaining_seconds{slice=s}"] > 2)
            assert samples(port)[late] == 0
            job.send_signal(signal.SIGSTOP)
            wait_until(lambda: others_ask(store) and samples(port)[late] == 1, what="a renewal that is late")
            wait_until(lambda: others_ask(store) and samples(port).get(lost) == 1, what="its loss")
        finally:
            job.kill()
            store.close()


def others_ask(store: Store) -> str:
    """Pool time goes on, and leases are looked at, when anybody calls: an agent, or whoever waits."""
    its = ("other", "other", "main", 1, "0", 1, ("s",), "other:0:1:0", 60_000, 60_000)
    return store.run(Acquire(*its)).outcome


def test_the_command_serves_until_it_is_told_to_stop(slicelock_env: dict[str, str]) -> None:
    with program("exporter", "--listen", "0") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "metrics of pool" in line
        port = int(line.rpartition("/metrics")[0].rpartition(":")[2])
        assert samples(port)["slicelock_up{}"] == 1
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize(
    "address", ["nowhere", "1.2.3.4:x", ":99", "99999", "-1", "host:", "[::1", "[]:1", "http://a:80", "²"]
)
def test_an_address_that_is_none_is_a_usage_error(call: Call, address: str) -> None:
    ended = call("exporter", "--listen", address)
    assert ended.code == ExitCode.USAGE and address in ended.complaint
    assert "for example 127.0.0.1:9465" in ended.complaint, "where this command listens by default"


def test_an_address_that_is_taken_is_named(slicelock_env: dict[str, str], port: int, call: Call) -> None:
    ended = call("exporter", "--listen", str(port))
    assert ended.code == ExitCode.USAGE and f"127.0.0.1:{port}" in ended.complaint


@pytest.mark.parametrize("address", ["nowhere.invalid:0", "1.2.3.4:0", "a b:0", "ü..ü:0"])
def test_an_address_that_cannot_be_had_is_told_as_one_that_is_none(
    slicelock_env: dict[str, str], call: Call, address: str
) -> None:
    ended = call("exporter", "--listen", address)
    assert ended.code == ExitCode.USAGE and f"cannot be served at {address}" in ended.complaint
    assert "--listen, for example 127.0.0.1:9465" in ended.complaint


def test_a_wrong_password_is_told_at_once(own_server: Callable[..., EmbeddedServer]) -> None:
    server = own_server(options={"requirepass": "right"})
    with pytest.raises(ConfigurationError, match="password"):
        Exporter(StoreSettings(redis_url=server.url), ("127.0.0.1", 0), print)  # type: ignore[arg-type]


def test_a_client_that_says_nothing_is_in_nobodys_way(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        begun = time.monotonic()
        assert get(port, "/healthz")[0] == 200
        assert time.monotonic() - begun < 5


def test_odd_events_are_passed_over(world: World, port: int) -> None:
    world.declare("s")
    redis, key = world.scripts.client, world.scripts.keys.events
    for steps in ('[{"bytes": -5, "seconds": -5}]', '[{"bytes": 1e999}]', "[" * 100_000):
        redis.xadd(
            key, {"type": "ready", "t": "²", "slice": "s", "node": "n", "steps": steps, "seconds": "-9"}
        )
    redis.xadd(key, {"type": "held", "t": "9" * 5000, "slices": "s", "job": "j", "waited_ms": "1e999"})
    redis.xadd(key, {"type": "epoch", "t": "1"})
    counted(port, "slicelock_epochs_total{}", 1)
    counted(port, "slicelock_switches_total{node=n,outcome=ready,slice=s}", 3)
    assert get(port, "/healthz")[0] == 200


def test_what_cannot_be_counted_is_told_once(
    world: World, port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: StreamMetrics, event: Event, *rest: object) -> None:
        raise KeyError(event.type)

    monkeypatch.setattr(StreamMetrics, "_each", broken)
    redis, key = world.scripts.client, world.scripts.keys.events
    for kind in ("requeued", "requeued", "epoch"):
        redis.xadd(key, {"type": kind, "t": "1", "slice": "s", "node": "n"})
    counted(port, "slicelock_epochs_total{}", 1)
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == 1 and "cannot be counted" in told[0]


def test_a_picture_that_cannot_be_read_is_told_and_logged(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pool: str, raw: object) -> Picture:
        raise ValueError("no number")

    monkeypatch.setattr(Picture, "of", broken)
    assert get(port, "/metrics") == (500, "ValueError: no number; the log says where\n")
    assert "/metrics cannot be told" in caplog.text and "no number" in caplog.text


def test_a_fault_beside_the_pages_is_logged_and_a_client_that_left_is_not(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: object, status: object) -> None:
        raise fault

    monkeypatch.setattr(serving._Handler, "send_response", fails)
    fault: Exception = BrokenPipeError()
    with pytest.raises(OSError):
        get(port, "/healthz")
    assert caplog.text == ""
    fault = ValueError("wrong")
    with pytest.raises(OSError):
        get(port, "/healthz")
    wait_until(lambda: "ValueError: wrong" in caplog.text)


def test_it_can_listen_at_an_address_of_version_6(slicelock_env: dict[str, str]) -> None:
    with closing(Exporter(StoreSettings.load(), ("::1", 0), lambda line: None)) as made:
        assert made.server.url == f"http://[::1]:{made.server.port}"
        with urllib.request.urlopen(f"{made.server.url}/healthz", timeout=10) as answer:
            assert answer.read() == b"ok\n"
