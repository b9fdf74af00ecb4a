"""Turns through a failover: those that run lose nothing, and those that wait not much."""

from __future__ import annotations

import time

import pytest

from tests.support.sentinels import Deployment, away
from tests.support.sides import Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.failover, pytest.mark.usefixtures("agent")]

EXTRA_S = 4.0  # what a waiter may wait beyond the failover


def test_a_running_turn_survives_a_kill_of_the_primary_and_the_waiter_is_served(
    side: Side, deployment: Deployment
) -> None:
    turn = side.acquire("a")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice("a").queued == 1)
    primary, since = deployment.primary, time.monotonic()
    primary.kill()
    deployment.wait_failover(primary, since)
    promoted = time.monotonic()
    wait_until(away(lambda: not turn.unconfirmed and side.holder("a") == "r1"), EXTRA_S)
    turn.check()
    side.give(turn)
    second = waiting.result(max(promoted + EXTRA_S - time.monotonic(), 0.1))
    assert second.fence > turn.fence
    side.give(second)


def test_a_hung_primary_is_left_by_running_and_waiting_runs(side: Side, deployment: Deployment) -> None:
    """SIGSTOP: no connection breaks, nothing answers, and the waiter is idle."""
    turn = side.acquire("a")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice("a").queued == 1)
    primary, since = deployment.primary, time.monotonic()
    primary.freeze()
    deployment.wait_failover(primary, since)
    promoted = time.monotonic()
    wait_until(away(lambda: not turn.unconfirmed and side.holder("a") == "r1"), EXTRA_S)
    turn.check()
    side.give(turn)
    second = waiting.result(max(promoted + EXTRA_S - time.monotonic(), 0.1))
    primary.wake()
    assert second.fence > turn.fence
    side.give(second)
