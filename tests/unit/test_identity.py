"""A process is known by boot, pid namespace, pid and start time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slicelock.identity import ProcessIdentity


def test_of_this_process_and_back_from_text() -> None:
    me = ProcessIdentity.of()
    assert me.pid == os.getpid()
    assert me == ProcessIdentity.of(os.getpid())
    assert ProcessIdentity.parse(str(me)) == me
    assert len(me.boot) == 32


def test_two_processes_differ_and_a_zombie_is_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert ProcessIdentity.of(child.pid) != ProcessIdentity.of()
    assert child.stdin
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProcessLookupError, match="has ended"):
        ProcessIdentity.of(child.pid)
    child.wait()
    with pytest.raises(ProcessLookupError, match="no process"):
        ProcessIdentity.of(child.pid)


@pytest.mark.parametrize("text", ["", "a:1:2", "a:1:2:x", "a:1:2:3:4"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ProcessIdentity.parse(text)
