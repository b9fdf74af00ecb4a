"""The agent's metrics and health checks: counted by what it does, and never in the way of a switch."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from slicelock_agent.agent import Agent
from slicelock_agent.metrics import Serving

from slicelock.embedded import EmbeddedServer
from slicelock.local_agent import LocalAgent
from slicelock.settings import AgentSettings
from tests.support.metrics_page import get, samples
from tests.support.stage import AgentStage
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server


def port_of(agent: LocalAgent) -> int:
    """Where an agent says that it serves."""
    found = re.search(r"metrics at http://127\.0\.0\.1:(\d+)/metrics", agent.log())
    assert found, agent.log()
    return int(found[1])


def switch_twice(agents: AgentStage) -> None:
    """A has its turn and leaves its state on the device; B gets the device."""
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(b"x" * 20_000)
    a.yield_()
    b.take("s")


def test_switches_are_counted_by_step_and_backend(agents: AgentStage) -> None:
    port = port_of(agents.agent(metrics="0"))
    switch_twice(agents)
    seen = wait_until(lambda: (now := samples(port)).get(SNAPSHOT_BYTES, 0) and now, what="the snapshot")
    assert seen[SNAPSHOT_BYTES] >= 20_000
    assert seen["slicelock_agent_switch_step_duration_seconds_count{node=n1,step=snapshot,way=sim}"] == 1
    assert seen["slicelock_agent_switches_total{node=n1,outcome=ready,slice=s}"] == 2
    assert seen["slicelock_agent_switch_duration_seconds_count{node=n1,slice=s}"] == 2
    assert seen["slicelock_agent_runs{node=n1,slice=s,state=saved}"] == 1
    assert seen["slicelock_agent_runs{node=n1,slice=s,state=loaded}"] == 1
    found = [seen[f"slicelock_agent_wishes_total{{found_by={word},node=n1}}"] for word in ("message", "poll")]
    assert sum(found) == 2
    assert seen["slicelock_agent_beats_total{node=n1,outcome=answered}"] > 0
    assert seen["slicelock_agent_epoch{node=n1}"] == 1
    assert seen["slicelock_agent_epoch_changes_total{node=n1}"] == 0


SNAPSHOT_BYTES = "slicelock_agent_switch_step_bytes_total{node=n1,step=snapshot,way=sim}"


@pytest.mark.usefixtures("promtool")
def test_promtool_has_nothing_to_say(agents: AgentStage) -> None:
    port = port_of(agents.agent(metrics="0"))
    switch_twice(agents)
    text = get(port, "/metrics")[1]
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_an_agent_serves_nothing_unless_it_is_told_to(agents: AgentStage) -> None:
    agent = agents.agent()
    assert "metrics" not in agent.log()


def test_it_is_not_ready_while_redis_is_away(own_agents: tuple[AgentStage, EmbeddedServer]) -> None:
    agents, server = own_agents
    port = port_of(agents.agent(metrics="127.0.0.1:0"))
    wait_until(lambda: get(port, "/readyz") == (200, "ok\n"))
    before = samples(port)["slicelock_agent_redis_connects_total{node=n1}"]
    server.stop()
    wait_until(lambda: get(port, "/readyz")[0] == 503)
    assert "Redis does not answer" in get(port, "/readyz")[1]
    assert get(port, "/healthz") == (200, "ok\n"), "it lives, and running turns go on"
    server.start()
    wait_until(lambda: get(port, "/readyz")[0] == 200)
    seen = wait_until(lambda: (now := samples(port))["slicelock_agent_epoch_changes_total{node=n1}"] and now)
    assert seen["slicelock_agent_redis_connects_total{node=n1}"] > before, "it was opened anew"


def test_a_stopped_agent_answers_nothing_and_one_that_goes_on_is_well(agents: AgentStage) -> None:
    agent = agents.agent(metrics="0")
    port = port_of(agent)
    agent.process.send_signal(signal.SIGSTOP)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as asked:
        asked.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        asked.settimeout(0.5)
        with pytest.raises(TimeoutError):
            asked.recv(1)
        agent.process.send_signal(signal.SIGCONT)
        asked.settimeout(10)
        assert b"200" in asked.recv(100)


@pytest.mark.parametrize(
    ("address", "code", "says"),
    [("nonsense", 3, "SLICELOCK_METRICS"), ("192.0.2.1:1", 3, "Metrics cannot be served at 192.0.2.1:1")],
)
def test_an_address_that_cannot_be_had_is_named(
    agents: AgentStage, address: str, code: int, says: str
) -> None:
    ended, said = agents.try_agent("--slice", "s=sim:d", metrics=address)
    assert (ended, len(said.splitlines())) == (code, 1), said
    assert says in said
    assert not [path for path in agents.folder.rglob("*") if path.is_file()]


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Do something over and over, on a thread, until the test ends; it must not fail."""
    over, failed = threading.Event(), list[Exception]()
    threads: list[threading.Thread] = []

    def begin(work: Callable[[], object]) -> None:
        def repeat() -> None:
            try:
                while not over.is_set():
                    work()
            except Exception as failure:
                failed.append(failure)

        threads.append(threading.Thread(target=repeat))
        threads[-1].start()

    yield begin
    over.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_scrapes_without_end_stand_in_no_switchs_way(
    agents: AgentStage, beside: Callable[[Callable[[], object]], None]
) -> None:
    port = port_of(agents.agent(metrics="0"))
    beside(lambda: samples(port))
    for number in range(5):
        run = agents.run(f"run-{number}")
        run.take("s", timeout=20)
        run.yield_()


def test_nothing_is_served_before_there_is_something_to_tell(
    server: EmbeddedServer, pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    class AtOnce(Serving):
        """Somebody asks as soon as it listens."""

        def __init__(self, address: str, registry: CollectorRegistry, in_touch: Callable[[], bool]) -> None:
            super().__init__(address, registry, in_touch)
            told.extend([in_touch(), any(registry.collect())])

    async def live() -> None:
        settings = AgentSettings(
            redis_url=server.url,  # type: ignore[arg-type]
            pool=pool,
            node="n1",
            metrics="0",
            state_dir=tmp_path / "state",
            sim_dir=tmp_path / "sim",
        )
        agent = Agent(settings, {"s": ("sim:d",)}, "test")
        try:
            await agent.start()
        finally:
            await agent.close()

    monkeypatch.setattr("slicelock_agent.metrics.Serving", AtOnce)
    asyncio.run(live())
    assert told == [False, True]
