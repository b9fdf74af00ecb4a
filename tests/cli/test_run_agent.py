"""`slicelock run` on a slice with an agent: what the agent sees and does."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicelock.local_agent import LocalAgent
from slicelock.picture import Picture, SliceView
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Status
from tests.cli.programs import program
from tests.cli.test_run import said
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

SLICE = "acc"


@pytest.fixture
def store(slicelock_env: dict[str, str], tmp_path: Path) -> Iterator[Store]:
    """A pool with an agent and one simulated slice."""
    with tempfile.TemporaryDirectory(prefix="slicelock-test-", dir="/dev/shm") as memory:
        env = {**slicelock_env, "SLICELOCK_SIM_DIR": memory, "SLICELOCK_STATE_DIR": str(tmp_path)}
        with LocalAgent({SLICE: "sim:0"}, env):
            made = Store(StoreSettings.load())
            yield made
            made.close()


def acc(store: Store) -> SliceView:
    return Picture.of("", store.run(Status()).picture).slices[0]


def hold(*command: str) -> tuple[str, ...]:
    return ("run", "--slice", SLICE, "--hold", "--", *command)


def test_two_commands_take_turns(store: Store) -> None:
    words = hold("sh", "-c", "echo begun; exec sleep 0.3")
    with program(*words) as first, program(*words) as second:
        codes = [process.wait(20) for process in (first, second)]
    assert codes == [0, 0]
    wait_until(lambda: acc(store).state == "free")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_one_goes_on_when_the_holder_is_killed(store: Store, number: signal.Signals) -> None:
    with program(*hold("sh", "-c", "echo $$; exec sleep 600")) as first:
        assert said(first)
        with program(*hold("echo", "begun")) as second:
            wait_until(lambda: acc(store).queued == 1, 30, "the second one to wait")
            killed = time.monotonic()
            first.send_signal(number)
            assert said(second) == "begun"
            assert time.monotonic() - killed < 5.0  # an agent sees the death at once; the lease is 60 s
            assert second.wait(20) == 0


def test_a_command_that_is_killed_itself_ends_the_turn(store: Store) -> None:
    with program(*hold("sh", "-c", "echo $$; exec sleep 600")) as process:
        pid = int(said(process))
        os.kill(pid, signal.SIGKILL)
        assert process.wait(20) == 137
    wait_until(lambda: acc(store).state == "free")
