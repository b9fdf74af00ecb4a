"""Two planned failovers in a row: the first primary is one again before anybody has made a replica of it.

It is the same process with the same run id, and knows nothing of what happened in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from redis.exceptions import ResponseError

from tests.support.sentinels import NAME, Deployment, Node, away
from tests.support.sides import Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.failover, pytest.mark.usefixtures("agent")]

EXTRA_S = 4.0  # what a waiter may wait beyond the failover


@pytest.fixture
def deployment(binary: str) -> Iterator[Deployment]:
    with Deployment(binary, replicas=1) as made:
        yield made


def hand_over(deployment: Deployment) -> Node:
    """A planned failover; the node that was the primary."""
    old, since = deployment.primary, time.monotonic()

    def begun() -> bool:
        try:
            with deployment.sentinels[0].client() as client:
                client.execute_command("SENTINEL", "FAILOVER", NAME)
        except ResponseError:  # one is under way, or the other node is not yet known to be well
            return False
        return True

    wait_until(begun, 20, "Sentinels begin a failover")
    deployment.wait_failover(old, since)
    return old


def test_a_primary_that_is_back_at_once_ends_no_turn(side: Side, deployment: Deployment) -> None:
    first = side.acquire("a")
    waiting = side.ask("a", run="r2")
    wait_until(lambda: side.slice("a").queued == 1)
    old = hand_over(deployment)
    wait_until(away(lambda: not first.unconfirmed and side.holder("a") == "r1"), EXTRA_S)
    side.give(first)
    second = waiting.result(EXTRA_S)
    third = side.ask("a", run="r3")
    wait_until(away(lambda: side.slice("a").queued == 1), EXTRA_S)
    assert old.info()["role"] == "master", "it has been made a replica in the meantime"

    hand_over(deployment)
    assert deployment.primary is old
    time.sleep(EXTRA_S)
    second.check()
    assert side.holder("a") == "r2"
    assert not third.done()
    side.give(second)
    last = third.result(EXTRA_S)
    assert last.fence > second.fence
    side.give(last)
