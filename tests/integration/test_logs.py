"""One line for each transition in the client and the agent; nothing in a job that does not ask for it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from slicelock.store import Store
from slicelock.wire import Declare
from tests.support.sides import Side
from tests.support.stage import AgentStage
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

JOB = """
import slicelock
with slicelock.Slice("a").turn(phase="train"):
    pass
"""
MOVED = ("held", "yielded", "given back", "lost")


def transitions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith(MOVED)]


def test_a_turn_is_two_lines(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "slicelock"):
        turn = side.acquire("a", phase="train")
        fence = turn.fence
        side.give(turn)
    held, yielded = transitions(caplog)
    about = f"slice=a job=job-r1 run=r1 lane=main turn=1 phase=train fence={fence}"
    assert held.startswith(f"held {about} waited_s=")
    assert yielded == f"yielded {about} waiters=0"


def test_a_slice_given_back_early_is_a_line(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "slicelock"):
        turn = side.acquire("a", "b")
        side.give(turn, "b")
        side.give(turn)
    assert [line.split(" job=")[0] for line in transitions(caplog)] == [
        "held slice=a,b",
        "given back slice=b",
        "yielded slice=a,b",
    ]


def test_a_lost_turn_is_told_as_an_error(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    turn = side.acquire("a", phase="train")
    side.revoke(turn)
    wait_until(turn.lost.is_set)
    [line] = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert (
        "revoked" in line
        and f"slice=a job=job-r1 run=r1 lane=main turn=1 phase=train fence={turn.fence}" in line
    )


# ---------------------------------------------------------------- a job's process


def run_job(**variables: str) -> str:
    with_settings = {f"SLICELOCK_{name.upper()}": value for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={**os.environ, **with_settings},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr


@pytest.fixture
def declared(slicelock_env: dict[str, str], side: Side) -> None:
    store = Store(side.settings())
    store.run(Declare("a", {}))
    store.close()


@pytest.mark.usefixtures("declared")
def test_a_job_says_nothing_unless_it_is_told_to() -> None:
    assert run_job() == ""
    text = run_job(log_level="info", run="x1").splitlines()
    assert [line.split(" job=")[0] for line in text] == [
        "slicelock: held slice=a",
        "slicelock: yielded slice=a",
    ]
    told = [json.loads(line) for line in run_job(log_level="info", log_format="json", run="x2").splitlines()]
    assert [(one["message"], one["slice"], one["job"]) for one in told] == [
        ("held", "a", "job"),
        ("yielded", "a", "job"),
    ]
    assert told[0]["program"] == "slicelock" and told[0]["fence"]


# ---------------------------------------------------------------- the agent


def test_an_agent_writes_a_line_for_each_switch(agents: AgentStage) -> None:
    agent = agents.agent()
    first, second = agents.run("r1"), agents.run("r2")
    first.take("s")
    agents.write(b"x" * 20_000)
    first.yield_()
    second.take("s")
    fence = second.again().fences["s"]
    wait_until(lambda: f"fence={fence}" in agent.log())
    [line] = [line for line in agent.log().splitlines() if f"fence={fence}" in line]
    assert line.startswith(
        f"slicelock-agent: ready slice=s job=job-r2 run=r2 fence={fence} bytes=20000 seconds="
    )


def test_an_agent_writes_json(agents: AgentStage) -> None:
    agent = agents.agent(log_format="json")
    agents.run("r1").take("s")
    wait_until(lambda: '"ready"' in agent.log())
    told = [json.loads(line) for line in agent.log().splitlines()]
    assert {one["program"] for one in told} == {"slicelock-agent"}
    [ready] = [one for one in told if one["message"] == "ready"]
    assert (ready["slice"], ready["job"], ready["level"]) == ("s", "job-r1", "info")


def test_an_agent_that_only_warns(agents: AgentStage) -> None:
    agent = agents.agent(log_level="warning")
    agents.run("r1").take("s")
    assert agent.log() == ""
