"""The driver's checkpoint of single processes: sizes, what a process may have, host limits, lost restores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from slicelock_agent.backends.cuda.discovery import identified
from slicelock_agent.backends.cuda.host import group_refusal

from slicelock.bench.line_process import SwapProcess
from slicelock.bench.swap_driver import Driver
from tests.gpu.own_gpu import used
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
GIB = 1 << 30
Figures = Callable[..., None]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def driver(stack: ExitStack) -> Driver:
    return stack.enter_context(Driver())


def cycle(driver: Driver, actor: SwapProcess, nbytes: int) -> dict[str, float]:
    out, back = driver.out(actor.pid), driver.back(actor.pid)
    rates = {"out_gb_s": round(nbytes / out / 1e9, 2), "in_gb_s": round(nbytes / back / 1e9, 2)}
    return {"out_s": round(out, 3), "in_s": round(back, 3), **rates}


@pytest.mark.slow
@pytest.mark.parametrize(("gib", "cycles"), [(1, 3), (8, 2), (32, 1), (60, 2), (80, 1)])
def test_every_size_comes_back_bit_for_bit(
    stack: ExitStack, driver: Driver, figures: Figures, gib: int, cycles: int
) -> None:
    actor = stack.enter_context(SwapProcess("bare"))
    actor.ask("make", nbytes=gib * GIB, seed=gib)
    before = actor.ask("checksum")
    for _ in range(cycles):
        figures(gib=gib, **cycle(driver, actor, gib * GIB))
        assert actor.ask("checksum") == before


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 200, 5000])
def test_the_number_of_allocations(stack: ExitStack, driver: Driver, figures: Figures, pieces: int) -> None:
    actor = stack.enter_context(SwapProcess("plain"))
    for _ in range(pieces):
        actor.ask("hold", nbytes=4 * GIB // pieces)
    figures(gib=4, pieces=pieces, **cycle(driver, actor, 4 * GIB))


@pytest.mark.parametrize("segments", ["False", "True"])
def test_what_a_process_may_have_works_after_five_cycles(
    driver: Driver, figures: Figures, segments: str
) -> None:
    env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{segments}"}
    command = [sys.executable, "-m", "tests.support.gpu_everything"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "ready\n"
            for _ in range(5):
                driver.out(job.pid)
                driver.back(job.pid)
                job.stdin.write("go\n")
                job.stdin.flush()
                assert job.stdout.readline() == "right\n"
            figures(expandable_segments=segments, cycles=5, works=True)
        finally:
            job.kill()


# ------------------------------------------------------------ host memory


@pytest.fixture
def group(stack: ExitStack) -> Path:
    """A control group of its own, without a limit yet."""
    root = Path("/sys/fs/cgroup")
    made = root / f"slicelock-test-{os.getpid()}"
    try:
        (root / "cgroup.subtree_control").write_text("+memory")
        made.mkdir()
    except OSError as failure:
        pytest.skip(f"no control group can be made here: {failure}")
    if not (made / "memory.max").exists():
        made.rmdir()
        pytest.skip("control groups here have no memory controller")
    stack.callback(lambda: wait_until(lambda: removed(made), 20, "the group is empty"))
    return made


def removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_a_control_group_without_room_is_refused_and_what_happens_otherwise(
    stack: ExitStack, group: Path, figures: Figures
) -> None:
    actor, driver = stack.enter_context(SwapProcess("bare")), stack.enter_context(Driver())
    actor.ask("make", nbytes=4 * GIB, seed=1)
    before = actor.ask("checksum")
    (group / "cgroup.procs").write_text(str(actor.pid))
    (group / "memory.max").write_text(str(int((group / "memory.current").read_text()) + 2 * GIB))
    process = identified(actor.pid)
    assert process is not None
    why = group_refusal({process: 4 * GIB})
    assert "the memory limit of" in why
    assert actor.ask("checksum") == before
    codes = [driver.call(actor.pid, what)["code"] for what in ("lock", "save")]
    alive = Path(f"/proc/{actor.pid}/cmdline").exists() and bool(
        Path(f"/proc/{actor.pid}/cmdline").read_bytes()
    )
    figures(refused=why, forced_codes=codes, alive=alive)
    os.kill(actor.pid, signal.SIGKILL)


# ------------------------------------------------------------ restore without room: the last one


@pytest.mark.slow
def test_zz_a_restore_without_room_loses_the_process_and_no_other(
    stack: ExitStack, driver: Driver, figures: Figures
) -> None:
    baseline = used()
    victim, hog = stack.enter_context(SwapProcess("bare")), stack.enter_context(SwapProcess("plain"))
    victim.ask("make", nbytes=20 * GIB, seed=1)
    driver.out(victim.pid)
    hog.ask("hold", nbytes=int(hog.ask("facts")["free"]) - 10 * GIB)
    without_room = driver.call(victim.pid, "restore")["code"]
    hog.ask("drop")
    with_room = driver.call(victim.pid, "restore")["code"]
    unlock = driver.call(victim.pid, "unlock")["code"]
    os.kill(victim.pid, signal.SIGKILL)
    os.kill(hog.pid, signal.SIGKILL)
    begun = time.monotonic()
    wait_until(lambda: used() < baseline + (64 << 20), 30, "the GPU's memory is free again")
    figures(
        without_room=without_room, with_room=with_room, unlock=unlock,
        freed_after_kill_s=round(time.monotonic() - begun, 2),
    )  # fmt: skip
    assert (without_room, with_room) == (2, 304)
    next_one: Any = stack.enter_context(SwapProcess("bare"))
    next_one.ask("make", nbytes=GIB, seed=2)
    before = next_one.ask("checksum")
    cycle(driver, next_one, GIB)
    assert next_one.ask("checksum") == before
