"""What asks a program to end, as under nohup and as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from slicelock.cli.bench import measuring
from slicelock.cli.console import stopping
from slicelock.demo.interrupts import held_back
from tests.cli.conftest import Call
from tests.cli.programs import SLICELOCK, below, program

pytestmark = pytest.mark.one_server


@pytest.fixture
def nohup() -> Iterator[None]:
    """A terminal that hangs up is nothing to this process and those that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("nohup")
@pytest.mark.parametrize("block", [stopping, held_back, measuring])
def test_after_nohup_a_program_outlives_its_terminal(
    block: Callable[[], AbstractContextManager[object]],
) -> None:
    with block():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("slicelock_env", "nohup")
def test_after_nohup_a_command_goes_on_waiting(call: Call) -> None:
    assert call("slice", "declare", "a").code == call("slice", "drain", "a").code == 0
    with program("run", "--slice", "a", "--hold", "--", "true") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "slicelock: waiting for a\n"
        process.send_signal(signal.SIGHUP)
        assert call("slice", "undrain", "a").code == 0
        assert process.wait(20) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a pid namespace")
@pytest.mark.usefixtures("slicelock_env")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_first_process_of_a_container_ends_when_it_is_told(call: Call, number: signal.Signals) -> None:
    assert call("slice", "declare", "a").code == 0
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *SLICELOCK]
    with subprocess.Popen([*words, "events", "--since", "1h", "--follow"], stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline()
        (inner,) = below(outer.pid)
        os.kill(inner, number)
        try:
            assert outer.wait(20) == 128 + number
        finally:
            outer.kill()
