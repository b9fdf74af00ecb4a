"""The helper process by itself: its answers, its end, and the program `cuda-checkpoint` instead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from slicelock_agent.backends.cuda import preflight
from slicelock_agent.backends.cuda.answers import BROKEN, GONE, HUNG, UNCLEAR
from slicelock_agent.backends.cuda.discovery import Process, identified
from slicelock_agent.backends.cuda.helper import Program
from slicelock_agent.backends.cuda.helpers import IDLE_KEPT, Helpers

from tests.support.fake_driver import GIB, VARIABLE, World, state_of
from tests.support.fake_program import WORDS
from tests.support.gpu_rig import GPU, ROOT, SIZE, processes
from tests.support.wait import wait_until

PATHS = f"{ROOT}{os.pathsep}{ROOT / 'agent'}"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world.json").create({GPU: SIZE})


@pytest.fixture
async def helpers(world: World) -> AsyncIterator[Helpers]:
    environment = {**os.environ, VARIABLE: str(world.path), "PYTHONPATH": PATHS, "CUDA_VISIBLE_DEVICES": "7"}
    made = Helpers(["--driver", "tests.support.fake_driver:FakeDriver"], environment)
    yield made
    made.close()


@pytest.fixture
def one() -> Iterator[Process]:
    with processes(1) as [pid]:
        found = identified(pid)
        assert found is not None
        yield found


async def call(helpers: Helpers, op: str, one: Process, deadline: float = 5.0) -> int:
    return (await helpers.call(op, one.pid, one.start, deadline, 100)).code


async def test_calls_are_answered(helpers: Helpers, world: World, one: Process) -> None:
    assert await call(helpers, "state", one) == 3
    world.add(one.pid, {GPU: GIB})
    assert [await call(helpers, op, one) for op in ("lock", "save", "restore", "unlock")] == [0] * 4
    assert (await helpers.call("thread", one.pid, one.start, 5.0)).value == one.pid + 1
    assert helpers.started == 1


async def test_n9_a_zombie_or_another_process_with_the_same_pid_is_never_touched(
    helpers: Helpers, world: World, one: Process
) -> None:
    world.add(one.pid, {GPU: GIB})
    assert await call(helpers, "lock", Process(one.pid, one.start - 1)) == GONE
    os.kill(one.pid, signal.SIGKILL)
    stat = Path(f"/proc/{one.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", what="a zombie")
    assert await call(helpers, "lock", one) == GONE
    assert not world.log()


async def test_a_call_that_hangs_costs_its_helper(helpers: Helpers, world: World, one: Process) -> None:
    world.add(one.pid, {GPU: GIB})
    world.fault(one.pid, "state", hang=3600)
    answer = await helpers.call("state", one.pid, one.start, 0.5)
    assert answer.code == HUNG
    assert helpers.pids == []
    assert await call(helpers, "state", one) == 0
    assert helpers.started == 2


async def test_a_helper_that_was_killed_while_it_waited_is_not_asked(
    helpers: Helpers, world: World, one: Process
) -> None:
    world.add(one.pid, {GPU: GIB})
    assert await asyncio.gather(*(call(helpers, "state", one) for _ in range(3))) == [0] * 3
    for pid in helpers.pids:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: state_of(pid) in "ZX")
    assert await call(helpers, "lock", one) == 0
    assert world.state(one.pid) == "locked"
    assert len(helpers.pids) == 1


async def test_a_call_that_is_given_up_costs_its_helper(helpers: Helpers, world: World, one: Process) -> None:
    world.add(one.pid, {GPU: GIB})
    world.fault(one.pid, "state", hang=3600)
    task = asyncio.create_task(call(helpers, "state", one))
    while not world.log("state"):
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert helpers.pids == []


async def test_many_calls_at_once_leave_few_helpers(helpers: Helpers, world: World, one: Process) -> None:
    world.add(one.pid, {GPU: GIB})
    assert await asyncio.gather(*(call(helpers, "state", one) for _ in range(24))) == [0] * 24
    assert len(helpers.pids) <= IDLE_KEPT


async def test_helpers_die_with_their_agent(world: World) -> None:
    code = (
        "import asyncio, os, signal, sys\n"
        "from slicelock_agent.backends.cuda.helpers import Helpers\n"
        "async def main():\n"
        "    helpers = Helpers(['--driver', 'tests.support.fake_driver:FakeDriver'])\n"
        "    await helpers.call('ping', 0, 0, 20.0)\n"
        "    print(*helpers.pids, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, VARIABLE: str(world.path), "PYTHONPATH": PATHS}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    [helper] = map(int, done.stdout.split())
    wait_until(lambda: identified(helper) is None)


async def test_a_driver_that_cannot_be_loaded_is_told(world: World, one: Process) -> None:
    helpers = Helpers(["--driver", "tests.support.nothing:Driver"], {**os.environ, "PYTHONPATH": PATHS})
    answer = await helpers.call("state", one.pid, one.start, 5.0)
    assert answer.code == BROKEN
    assert "No module named 'tests.support.nothing'" in answer.text
    helpers.close()


PROGRAM = """#!/bin/sh
echo "$@" >>{log}
case "$*" in
  *--get-state*) echo running;;
  *--get-restore-tid*) echo "restore tid: 4711";;
  *lock*) ;;
  *restore*) echo 'Could not restore: "out of memory"' >&2; exit 1;;
  *) echo 'Could not do it: "operation not supported"' >&2; exit 1;;
esac
"""


def test_the_program_is_called_with_one_pid_and_words_become_codes(tmp_path: Path) -> None:
    path = tmp_path / "cuda-checkpoint"
    path.write_text(PROGRAM.format(log=tmp_path / "log"))
    path.chmod(0o755)
    program = Program(str(path))
    assert program.state(12) == (0, "running")
    assert program.thread(12) == (0, 4711)
    assert program.lock(12, 2500)[0] == 0
    assert (program.restore(12)[0], program.save(12)[0]) == (2, 801)
    assert (tmp_path / "log").read_text().splitlines() == [
        "--get-state --pid 12",
        "--get-restore-tid --pid 12",
        "--action lock --timeout 2500 --pid 12",
        "--action restore --pid 12",
        "--action checkpoint --pid 12",
    ]


@pytest.mark.parametrize(("code", "words"), sorted(WORDS.items()))
def test_the_programs_words_for_a_code_are_known(tmp_path: Path, code: int, words: str) -> None:
    assert _of_words(tmp_path, f'Error: "{words}"')[0] == code


@pytest.mark.parametrize(
    "words",
    [
        *(f'Error initializing CUDA: "{WORDS[code]}"' for code in (3, 304)),
        "resource temporarily unavailable",
        "sh: nvidia: not found",
        "",
    ],
)
def test_other_words_are_no_code(tmp_path: Path, words: str) -> None:
    code, told = _of_words(tmp_path, words)
    assert (code, told) == (UNCLEAR, words or "it ended with 1")


def _of_words(folder: Path, words: str) -> tuple[int, str | None]:
    path = folder / "cuda-checkpoint"
    path.write_text(f"#!/bin/sh\necho '{words}' >&2; exit 1\n")
    path.chmod(0o755)
    return Program(str(path)).restore(12)


def test_the_program_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cuda-checkpoint"
    path.write_text("#!/bin/sh\necho running\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert not list(preflight.of_library(Path("cuda-checkpoint")))
    assert Program("cuda-checkpoint").state(12) == (0, "running")


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is no program"):
        Program(str(tmp_path / "nothing"))
