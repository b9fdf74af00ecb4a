"""What the driver cannot tell is never taken for what is wished for."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slicelock.states import RunState
from tests.support import fake_program
from tests.support.fake_driver import state_of
from tests.support.gpu_rig import QUICK, GpuRig, processes
from tests.support.wait import wait_until


async def a_is_saved(rig: GpuRig, pids: list[int]) -> None:
    rig.has("a", pids)
    await rig.turn("a", 10)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert set(rig.world.states(pids)) == {"checkpointed"}


async def test_a_run_is_not_ready_before_it_is_known_where_it_is(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    rig.world.fault(three[1], "state", times=4, code=999)
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.world.states(three) == ["running"] * 3


async def test_nor_with_a_process_that_has_failed(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    rig.world.change(three[1], state="failed")
    assert (await rig.turn("a", 30)).outcome == "FAILED"
    assert not rig.world.log("restore", "unlock")
    assert rig.accelerator._saved_runs.read("s", rig.page.stays["a"].image) is not None


async def test_nobody_is_let_go_on_who_is_still_saved(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    subject = rig.switcher.at.subject("a", 20, rig.page.stays["a"].image)
    report = await rig.accelerator.unlock(subject, 1.0)
    assert list(report.failures.values()) == ["its state is checkpointed"] * 3


async def test_who_could_not_be_seen_at_first_is_let_go_on_too(rig: GpuRig, three: list[int]) -> None:
    await a_is_saved(rig, three)
    for pid in three:
        rig.world.change(pid, state="locked")
    rig.world.fault(three[1], "state", times=2, code=999)
    subject = rig.switcher.at.subject("a", 20, rig.page.stays["a"].image)
    assert (await rig.accelerator.unlock(subject, 1.0)).ok
    assert rig.world.states(three) == ["running"] * 3


async def test_a_run_is_not_saved_without_a_process_that_cannot_be_seen(
    rig: GpuRig, three: list[int]
) -> None:
    rig.has("a", three)
    await rig.turn("a", 10)
    subject = rig.switcher.at.subject("a", 20, "a-1")
    assert (await rig.accelerator.lock(subject, 5.0)).ok
    rig.world.fault(three[1], "state", times=2, code=999)
    report = await rig.accelerator.save(subject, 5.0)
    assert list(report.failures) == [f"process {three[1]}"]
    assert not rig.world.log("save")


async def test_a_process_stopped_while_it_is_locked_is_let_go_on_later(rig: GpuRig, three: list[int]) -> None:
    rig.has("a", three)
    await rig.turn("a", 10)
    subject = rig.switcher.at.subject("a", 20, "a-1")
    assert (await rig.accelerator.lock(subject, 5.0)).ok
    os.kill(three[1], signal.SIGSTOP)
    wait_until(lambda: state_of(three[1]) == "T")
    assert list((await rig.accelerator.save(subject, 5.0)).failures) == [f"process {three[1]}"]
    assert list((await rig.accelerator.unlock(subject, 5.0)).failures) == [f"process {three[1]}"]
    os.kill(three[1], signal.SIGCONT)
    assert (await rig.accelerator.unlock(subject, 5.0)).ok
    assert rig.world.states(three) == ["running"] * 3


async def test_a_saved_run_is_looked_at_until_the_driver_can_tell(tmp_path: Path, three: list[int]) -> None:
    async with GpuRig(tmp_path) as rig:
        await a_is_saved(rig, three)
        rig.page.put(replace(rig.page.stays["a"], state=RunState.RESTORING))
    rig.world.fault(three[1], "state", times=8, code=999)
    async with rig:
        rig.registry.pids["a"] = three
        await rig.idle()
        assert rig.states()["a"] == "saved"
        assert (await rig.turn("a", 30)).outcome == "READY"
        assert rig.world.states(three) == ["running"] * 3


# ---------------------------------------------------------------- the program instead of the bindings

WORDS = "Could not open the coordination socket: resource temporarily unavailable"


@pytest.fixture
async def by_program(tmp_path: Path) -> AsyncIterator[GpuRig]:
    options = ("--program", str(fake_program.install(tmp_path)))
    patient = replace(QUICK, look=10.0, lock=2.0, grace=10.0, unlock=10.0)  # each call starts a program
    async with GpuRig(tmp_path, options=options, patience=patient) as made:
        await made.idle()
        yield made


@pytest.fixture
def one() -> Iterator[list[int]]:
    with processes(1) as pids:
        yield pids


async def test_a_restore_that_fails_with_unknown_words_loses_nothing(
    by_program: GpuRig, one: list[int]
) -> None:
    await a_is_saved(by_program, one)
    by_program.world.fault(one[0], "restore", code=1, words=WORDS)
    assert (await by_program.turn("a", 30)).outcome == "READY"
    assert by_program.world.states(one) == ["running"]


async def test_nor_does_one_that_always_does(by_program: GpuRig, one: list[int]) -> None:
    await a_is_saved(by_program, one)
    by_program.world.fault(one[0], "restore", times=9, code=1, words=WORDS)
    result = await by_program.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    assert f"cuda-checkpoint failed: Could not do it on process ID {one[0]}: {WORDS}" in result.reason
    assert by_program.states()["a"] == "saved"


async def test_a_save_that_did_its_work_with_unknown_words_has_done_it(
    by_program: GpuRig, one: list[int]
) -> None:
    by_program.has("a", one)
    await by_program.turn("a", 10)
    by_program.world.fault(one[0], "save", code=1, words=WORDS, state="checkpointed")
    assert (await by_program.turn("b", 20)).outcome == "READY"
    assert by_program.states() == {"a": "saved", "b": "loaded"}


async def test_a_restore_that_fails_with_the_words_of_a_lost_process_loses_it(
    by_program: GpuRig, one: list[int]
) -> None:
    await a_is_saved(by_program, one)
    by_program.world.fault(one[0], "restore", code=304)
    result = await by_program.turn("a", 30)
    assert "OS call failed" in result.reason
    assert by_program.states()["a"] == "lost"
