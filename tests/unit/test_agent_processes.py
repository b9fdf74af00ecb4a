"""Processes are found by what is true of them, not by what is said of them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slicelock_agent import processes
from slicelock_agent.processes import Finder, Presence

from slicelock.errors import AgentError
from slicelock.identity import ProcessIdentity, boot_id
from tests.support.wait import wait_until

SLEEPER = "import sys, time; print('up', flush=True); time.sleep(600)"
ROOT = os.geteuid() == 0

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python child that sleeps; all are gone at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str = SLEEPER, *prefix: str, **facts: object) -> subprocess.Popen[bytes]:
        command = [*prefix, sys.executable, "-c", code]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, **facts)  # type: ignore[call-overload]
        started.append(child)
        assert child.stdout.readline().strip() == b"up"
        return child

    yield begin
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]


@pytest.fixture
def finder() -> Finder:
    return Finder([boot_id()], None)


def look(finder: Finder, one: ProcessIdentity) -> Presence:
    found = finder.find([one])[one]
    if found.pidfd >= 0:
        os.close(found.pidfd)
    return found.presence


def test_a_living_process_is_held(finder: Finder, start: Start) -> None:
    child = start()
    one = ProcessIdentity.of(child.pid)
    found = finder.find([one])[one]
    assert (found.presence, found.pid) == (Presence.HERE, child.pid)
    signal.pidfd_send_signal(found.pidfd, signal.SIGKILL)
    child.wait()
    os.close(found.pidfd)
    assert look(finder, one) is Presence.GONE


def test_n9_a_zombie_is_gone(finder: Finder, start: Start) -> None:
    child = start()
    one = ProcessIdentity.of(child.pid)
    child.kill()
    wait_until(lambda: processes.state_of(child.pid) == "Z")
    assert look(finder, one) is Presence.GONE


@pytest.mark.parametrize(
    "change",
    [
        {"start": 1},
        {"pid": 2**22 + 5},
        {"pid": 2**31},
        {"pid": 2**70},
        {"pid": 0},
        {"pid": -1},
        {"start": -(2**80)},
    ],
)
def test_false_facts_find_nobody(finder: Finder, change: dict[str, int]) -> None:
    one = replace(ProcessIdentity.of(), **change)  # type: ignore[arg-type]
    assert look(finder, one) is Presence.GONE


def test_another_process_with_the_same_pid_is_not_taken_for_it(finder: Finder, start: Start) -> None:
    child = start()
    one = ProcessIdentity.of(child.pid)
    assert look(finder, replace(one, start=one.start - 1)) is Presence.GONE


def test_a_thread_is_no_process(finder: Finder, start: Start) -> None:
    child = start(f"import threading; threading.Thread(target=exec, args=({SLEEPER!r},)).start()")
    threads = {int(entry.name) for entry in Path(f"/proc/{child.pid}/task").iterdir()} - {child.pid}
    one = replace(ProcessIdentity.of(child.pid), pid=threads.pop())
    assert look(finder, one) is not Presence.HERE


def test_other_machines_and_earlier_boots_are_told_apart() -> None:
    finder = Finder(["before", boot_id()], None)
    own = ProcessIdentity.of()
    assert look(finder, replace(own, boot="elsewhere")) is Presence.ELSEWHERE
    assert look(finder, replace(own, boot="before")) is Presence.GONE
    assert look(finder, own) is Presence.HERE


@pytest.mark.skipif(not ROOT, reason="needs root to become somebody else")
def test_a_process_of_another_user_is_denied() -> None:
    with subprocess.Popen(["sleep", "600"], user=65534) as child:
        one = ProcessIdentity.of(child.pid)
        assert look(Finder([boot_id()], (0,)), one) is Presence.DENIED
        assert look(Finder([boot_id()], (0, 65534)), one) is Presence.HERE
        child.kill()


@pytest.mark.skipif(not ROOT, reason="needs root for a pid namespace")
def test_a_process_in_another_namespace_is_found_and_its_end_seen(finder: Finder, start: Start) -> None:
    code = (
        "import os, sys; sys.path.insert(0, os.getcwd()); from slicelock.identity import ProcessIdentity; "
        "print('up', flush=True); print(ProcessIdentity.of(), flush=True); import time; time.sleep(600)"
    )
    outer = start(code, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    one = ProcessIdentity.parse(outer.stdout.readline().decode().strip())  # type: ignore[union-attr]
    assert one.pid == 1
    assert one.namespace != processes.namespace_of("self")
    found = finder.find([one])[one]
    assert found.presence is Presence.HERE
    assert found.pid not in (1, outer.pid)
    os.close(found.pidfd)
    os.kill(found.pid, signal.SIGKILL)
    outer.wait()
    expected = (
        Presence.GONE if processes.namespace_of("self") == processes.FIRST_NAMESPACE else Presence.UNSEEN
    )
    assert look(finder, one) is expected


def test_a_namespace_that_cannot_be_seen_leaves_the_question_open(
    finder: Finder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "FIRST_NAMESPACE", 7)
    one = replace(ProcessIdentity.of(), namespace=12345)
    assert look(finder, one) is Presence.UNSEEN


# ---------------------------------------------------------------- tags


@pytest.mark.parametrize(
    ("variables", "belongs"),
    [
        ({"SLICELOCK_RUN": "r1", "SLICELOCK_JOB": "j"}, True),
        ({"SLICELOCK_RUN": "r2", "SLICELOCK_JOB": "j"}, False),
        ({"SLICELOCK_JOB": "j"}, True),
        ({"SLICELOCK_JOB": "other"}, False),
        ({}, False),
    ],
)
def test_the_environment_says_whose_a_process_is(
    start: Start, variables: dict[str, str], belongs: bool
) -> None:
    child = start(env={"PATH": os.environ["PATH"], **variables})
    assert processes.tagged(child.pid, "r1", "j") is belongs


def test_a_process_that_is_gone_belongs_to_nobody() -> None:
    assert not processes.tagged(2**22 + 5, "r1", "j")


# ---------------------------------------------------------------- families and their end

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
print('up', flush=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_descendants_belong_to_the_family_and_the_agent_does_not(start: Start) -> None:
    parent = start(FAMILY)
    child = int(parent.stdout.readline())  # type: ignore[union-attr]
    assert processes.family([parent.pid]) == [parent.pid, child]
    assert set(processes.family([os.getpid()])) == set()
    assert os.getpid() not in processes.family([os.getppid(), 1])
    assert 1 not in processes.family([1])
    assert processes.family([2**22 + 5]) == []


async def test_a_family_is_ended_as_a_whole(start: Start) -> None:
    parent = start(FAMILY)
    child = int(parent.stdout.readline())  # type: ignore[union-attr]
    await processes.end([parent.pid], None, 10.0)
    assert parent.wait() == -signal.SIGKILL
    assert processes.state_of(child) in "ZX"


async def test_stopped_processes_are_ended_too(start: Start) -> None:
    child = start()
    os.kill(child.pid, signal.SIGSTOP)
    await processes.end([child.pid], None, 10.0)
    assert child.wait() == -signal.SIGKILL


async def test_nobody_is_ended_when_one_may_not_be_touched(start: Start) -> None:
    child = start()
    with pytest.raises(AgentError, match="may not touch"):
        await processes.end([child.pid], (os.geteuid() + 1,), 10.0)
    assert child.poll() is None
    assert processes.state_of(child.pid) in "RS"


async def test_ending_what_is_gone_is_no_error() -> None:
    async with asyncio.timeout(5):
        await processes.end([2**22 + 5], None, 1.0)
