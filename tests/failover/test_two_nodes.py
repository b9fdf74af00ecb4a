"""The trap of two data nodes: min-replicas-to-write stops the promoted primary, which has no replica yet.

Everybody who asks is told the setting and the remedy, running turns go on, and all goes on once it is undone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from slicelock import errors
from slicelock.cli.failures import ExitCode
from slicelock.local_agent import LocalAgent
from tests.support.sentinels import Deployment, Node, away, fail_over
from tests.support.sides import ThreadSide, environment
from tests.support.wait import wait_until

pytestmark = pytest.mark.failover

REMEDY = "CONFIG SET min-replicas-to-write 0"
SOON_S = 10.0
LATER_S = 30.0  # a restarted node is told by Sentinels whom to follow, after ten seconds or so


@pytest.fixture
def deployment(binary: str) -> Iterator[Deployment]:
    """Two data nodes; each demands a replica of itself."""
    with Deployment(binary, replicas=1, options={"min-replicas-to-write": "1"}) as made:
        yield made


@pytest.fixture
def kind() -> type[ThreadSide]:
    """One side is enough: what servers refuse reaches both by the same words."""
    return ThreadSide


def command(side: ThreadSide, *words: str) -> tuple[int, str, str]:
    """A command of slicelock: its exit code, what it printed, and what it complained of."""
    ended = subprocess.run(
        [sys.executable, "-m", "slicelock", *words],
        env=environment(side),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr.strip()


def start_replica(old: Node, primary: Node) -> None:
    old.start()


def change_setting(old: Node, primary: Node) -> None:
    primary.ask("CONFIG", "SET", "min-replicas-to-write", "0")


@pytest.mark.slow
@pytest.mark.parametrize("heal", [start_replica, change_setting])
def test_a_promoted_primary_without_replicas(
    deployment: Deployment,
    side: ThreadSide,
    agent: LocalAgent,
    heal: Callable[[Node, Node], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn = side.acquire("a")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice("a").queued == 1)
    old = fail_over(deployment, Node.kill)

    wait_until(lambda: [line for line in caplog.messages if REMEDY in line], SOON_S, "a job says it")
    wait_until(lambda: REMEDY in agent.log(), SOON_S, "the agent says it")
    code, _, said = command(side, "slice", "declare", "x")
    assert (code, REMEDY in said, len(said.splitlines())) == (ExitCode.UNREACHABLE, True, 1), said
    code, told, _ = command(side, "doctor", "--json")
    found = {one["check"]: one for one in json.loads(told)["checks"]}
    assert (code, found["min-replicas"]["severity"]) == (ExitCode.OTHER, "critical"), found
    with pytest.raises(errors.StoreUnavailable, match=REMEDY):
        side.acquire("b", run="r3")  # a new job is told at once, the others wait

    turn.check()
    assert not waiting.done()
    heal(old, deployment.primary)
    wait_until(away(lambda: side.holder("a") == "r1"), LATER_S)
    turn.check()
    side.give(turn)
    second = waiting.result(LATER_S)  # a yield that Redis refuses is sent until it is taken
    assert second.fence > turn.fence
    side.give(second)
