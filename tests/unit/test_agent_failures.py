"""Switches whose steps fail: undone, tried again, reported with the reason. No Redis."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from slicelock_agent.backends.base import Report, Subject, Truth
from slicelock_agent.backends.sim import SimBackend
from slicelock_agent.host_budget import HostBudget
from slicelock_agent.reconcile import Stay

from slicelock.errors import AgentError
from slicelock.states import RunState
from tests.support.rig import Rig
from tests.support.wait import wait_until_async

A = b"state of a" * 2000


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with Rig(tmp_path) as made:
        await made.idle()
        yield made


class Faulty(SimBackend):
    """Fails as told: `save_fails` and `restore_fails` count down."""

    save_fails = restore_fails = 0
    truth: Truth | None = None
    calls: tuple[str, ...] = ()

    async def lock(self, subject: Subject, deadline: float) -> Report:
        self.calls += ("lock",)
        return await super().lock(subject, deadline)

    async def save(self, subject: Subject, deadline: float) -> Report:
        self.calls += ("save",)
        if self.save_fails:
            self.save_fails -= 1
            return Report(failures={"sim:d": "no luck"})
        return await super().save(subject, deadline)

    async def restore(self, subject: Subject, deadline: float) -> Report:
        self.calls += ("restore",)
        if self.restore_fails:
            self.restore_fails -= 1
            return Report(failures={"sim:d": "no luck"})
        return await super().restore(subject, deadline)

    async def unlock(self, subject: Subject, deadline: float) -> Report:
        self.calls += ("unlock",)
        return await super().unlock(subject, deadline)

    async def observe(self, subject: Subject, deadline: float) -> Truth:
        return self.truth or await super().observe(subject, deadline)


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[tuple[Rig, Faulty]]:
    async with Rig(tmp_path, backend=Faulty) as made:
        await made.turn("a", 10)
        made.write(A)
        assert isinstance(made.accelerator, Faulty)
        yield made, made.accelerator


async def stay_locked(subject: Subject, deadline: float) -> Report:
    return Report(failures={"sim:d": "still locked"})


async def explode(subject: Subject, deadline: float) -> Report:
    raise RuntimeError("the driver is gone")


async def test_a_failed_save_is_undone_and_tried_again_by_the_next_switch(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    backend.save_fails = 1
    result = await rig.turn("b", 20)
    assert (result.what, result.run) == ("evict", "a")
    assert "no luck" in result.reason
    assert backend.calls == ("lock", "save", "unlock")
    assert (rig.states(), rig.images(), rig.read(len(A))) == ({"a": "loaded"}, [], A)
    assert (await rig.turn("b", 30)).outcome == "READY"
    await rig.turn("a", 40)
    assert rig.read(len(A)) == A


async def test_a_run_that_stays_locked_after_it_is_not_let_in_before_it_goes_on(
    faulty: tuple[Rig, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, backend = faulty
    backend.save_fails = 1
    with monkeypatch.context() as patched:
        patched.setattr(backend, "unlock", stay_locked)
        result = await rig.turn("b", 20)
        assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
        assert result.reason.endswith("no luck; it cannot be let go on: sim:d: still locked")
        assert rig.states() == {"a": "unknown"}
    await wait_until_async(lambda: rig.states() == {"a": "loaded"})
    assert backend.calls[-1] == "unlock"
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.read(len(A)) == A


async def test_a_save_that_says_it_failed_but_did_not(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    backend.save_fails, backend.truth = 1, Truth.SAVED
    rig.empty()
    rig.accelerator.used = lambda devices: len(A) if backend.calls == () else 0  # type: ignore[method-assign]
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert rig.states()["a"] == "saved"


async def test_a_failed_restore_is_repeated_once(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    backend.restore_fails = 1
    assert (await rig.turn("a", 30)).outcome == "READY"
    assert rig.read(len(A)) == A


async def test_a_restore_that_fails_twice_keeps_the_image_and_the_next_run_starts(
    faulty: tuple[Rig, Faulty],
) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    backend.restore_fails = 2
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    assert "no luck" in result.reason
    assert (rig.states()["a"], len(rig.images())) == ("saved", 1)
    assert (await rig.turn("c", 40)).outcome == "READY"
    assert (await rig.turn("a", 50)).outcome == "READY"
    assert rig.read(len(A)) == A


async def test_a_lost_run_is_told_and_the_next_one_starts(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    backend.restore_fails, backend.truth = 2, Truth.LOST
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "restore", "a")
    assert (rig.states(), rig.images()) == ({"a": "lost"}, [])
    assert (await rig.turn("c", 40)).outcome == "READY"
    refused = await rig.turn("a", 50)
    assert (refused.what, refused.reason) == ("refused", "the run's state here is lost")


async def test_a_restore_that_raises_loses_nothing(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    restore, backend.restore = backend.restore, explode  # type: ignore[method-assign]
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    backend.restore = restore  # type: ignore[method-assign]
    assert (await rig.turn("a", 40)).outcome == "READY"
    assert rig.read(len(A)) == A


async def test_nor_does_a_journal_that_cannot_be_written_for_a_moment(
    faulty: tuple[Rig, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, _ = faulty
    await rig.turn("b", 20)

    def full(stay: Stay) -> None:
        raise AgentError("The journal cannot be written: the disk is full.")

    monkeypatch.setattr(rig.page, "put", full)
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "later", "a")
    assert "restore failed: The journal cannot be written" in result.reason
    monkeypatch.undo()
    assert (await rig.turn("a", 40)).outcome == "READY"
    assert rig.read(len(A)) == A


async def test_nor_does_it_fail_the_request_of_a_run_that_is_loaded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise AgentError("The journal cannot be written: the disk is full.")

    await rig.turn("a", 10)
    rig.want_nothing()
    monkeypatch.setattr(rig.page, "admit", full)
    result = await rig.turn("a", 20)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "")
    assert "run a cannot be admitted: The journal cannot be written" in result.reason
    monkeypatch.undo()
    assert (await rig.turn("a", 30)).outcome == "READY"


async def test_nor_does_a_clock_that_is_wrong(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    moved = tuple(backend.calls)
    result = await rig.turn("a", 1 << 62)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "")
    assert "more than a day ahead of this node's clock" in result.reason
    assert tuple(backend.calls) == moved
    assert (await rig.turn("a", 40)).outcome == "READY"
    assert rig.read(len(A)) == A


async def test_a_run_whose_image_is_gone_is_lost(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    [image] = (rig.folder / "sim" / "images").rglob("a@*")
    image.unlink()
    result = await rig.turn("a", 30)
    assert (result.outcome, result.what, result.run) == ("FAILED", "restore", "a")
    assert "its image is gone" in result.reason
    assert rig.states()["a"] == "lost"
    assert backend.calls[-1] == "restore"


@pytest.mark.parametrize("gone", ["d", "e"])
async def test_so_is_one_that_lacks_the_image_of_one_device(tmp_path: Path, gone: str) -> None:
    async with Rig(tmp_path, devices=("sim:d", "sim:e")) as rig:
        await rig.turn("a", 10)
        rig.write(A, "d")
        await rig.turn("b", 20)
        assert [name.rpartition(":")[2] for name in rig.images()] == ["d", "e"]
        [image] = (rig.folder / "sim" / "images").rglob(f"a@*:{gone}")
        image.unlink()
        result = await rig.turn("a", 30)
        assert (result.outcome, result.what, result.run) == ("FAILED", "restore", "a")
        assert rig.states()["a"] == "lost"
        assert rig.used("d") == 0


async def test_so_is_one_whose_image_goes_while_the_agent_is_away(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.turn("a", 10)
        rig.write(A)
        await rig.turn("b", 20)
        rig.page.put(replace(rig.page.stays["a"], state=RunState.RESTORING))
        for image in (rig.folder / "sim" / "images").rglob("a@*"):
            image.unlink()
    async with Rig(tmp_path) as rig:
        await rig.idle()
        assert rig.states()["a"] == "lost"


async def test_what_cannot_be_told_is_looked_at_again(
    faulty: tuple[Rig, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, backend = faulty
    monkeypatch.setattr("slicelock_agent.switcher.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("slicelock_agent.loading.SECOND_LOOK_S", 0.0)
    backend.save_fails, backend.truth = 1, Truth.UNKNOWN
    await rig.turn("b", 20)
    rig.want("b", 30)  # the request goes back to its place meanwhile
    await wait_until_async(lambda: len(rig.results) == 3)
    assert (rig.results[-1].what, rig.results[-1].run) == ("evict", "a")
    assert "Nobody can tell where the state of run a is" in rig.results[-1].reason
    assert rig.states() == {"a": "unknown"}
    backend.truth = None
    await rig.idle()
    assert len(rig.results) == 3
    assert (rig.states(), rig.read(len(A))) == ({"a": "loaded"}, A)
    assert (await rig.turn("b", 40)).outcome == "READY"


async def test_what_has_failed_is_poisoned_and_only_killed(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    backend.save_fails, backend.truth = 1, Truth.FAILED
    await rig.turn("b", 20)
    await rig.idle()
    assert rig.states() == {"a": "poisoned"}
    result = await rig.turn("b", 30)
    assert result.reason.count("can neither be saved nor brought back") == 1
    assert rig.switcher.shown()["loaded"] == ["a"]
    rig.registry.dead_runs.add("a")
    assert (await rig.turn("b", 40)).outcome == "READY"


async def test_a_verb_that_raises_ends_the_switch_with_its_reason(faulty: tuple[Rig, Faulty]) -> None:
    rig, backend = faulty
    backend.save = explode  # type: ignore[method-assign]
    result = await rig.turn("b", 20)
    assert result.reason == "evict failed: the driver is gone"
    await rig.idle()
    assert rig.states() == {"a": "loaded"}


async def test_host_memory_is_asked_for_before_anything_is_locked(tmp_path: Path) -> None:
    async with Rig(tmp_path, backend=Faulty, budget=HostBudget(lambda: (1 << 34, 1 << 30))) as rig:
        await rig.turn("a", 10)
        rig.write(A)
        result = await rig.turn("b", 20)
        assert "host memory does not suffice" in result.reason
        assert isinstance(rig.accelerator, Faulty)
        assert rig.accelerator.calls == ()
        assert rig.states() == {"a": "loaded"}


async def test_what_was_written_outside_any_turn_is_wiped(rig: Rig) -> None:
    rig.write(A)
    assert (await rig.turn("b", 20)).outcome == "READY"
    assert rig.used() == 0


async def test_a_journal_that_cannot_be_written_admits_nobody(rig: Rig) -> None:
    rig.book._file.close()
    result = await rig.turn("a", 10)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "")  # tried again later
    assert "cannot be written" in result.reason
    assert rig.admitted is None
    assert rig.accelerator.found(rig.devices) == ("", 0)


async def test_what_cannot_be_wiped_is_no_fault_of_the_request(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(devices: object) -> None:
        raise OSError("in use by process 7")

    monkeypatch.setattr(rig.accelerator, "wipe", busy)
    rig.write(A)
    result = await rig.turn("b", 20)
    assert (result.what, result.run, result.reason) == ("evict", "", "wipe failed: in use by process 7")


async def test_a_step_that_must_be_done_first_is_tried_again_with_pauses(
    faulty: tuple[Rig, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, backend = faulty
    monkeypatch.setattr("slicelock_agent.switcher.FIRST_PAUSE_S", 0.01)
    failures = [OSError("not now")] * 3

    async def discard(subject: Subject) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(backend, "discard", discard)
    await rig.turn("b", 20)
    rig.registry.dead_runs.add("a")
    rig.switcher.look()
    await wait_until_async(lambda: not failures)
    await rig.idle()
    assert rig.states() == {"b": "loaded"}


# ---------------------------------------------------------------- another run is wanted meanwhile


@pytest.mark.parametrize("truth", [Truth.LOST, Truth.SAVED])
async def test_a_restore_that_fails_for_a_run_is_no_fault_of_the_next_one_wanted(
    faulty: tuple[Rig, Faulty], monkeypatch: pytest.MonkeyPatch, truth: Truth
) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def fail(subject: Subject, deadline: float) -> Report:
        begun.set()
        await go_on.wait()
        return Report(failures={"sim:d": "no luck"})

    monkeypatch.setattr(backend, "restore", fail)
    monkeypatch.setattr(backend, "truth", truth)
    rig.want("a", 30)
    await begun.wait()
    rig.want("c", 40)
    go_on.set()
    await wait_until_async(lambda: len(rig.results) > 2, what="c's result")
    assert [(one.fence, one.outcome, one.run) for one in rig.results[2:]] == [(40, "READY", "c")]
    assert rig.states()["a"] == truth


async def test_a_run_that_waits_for_room_holds_up_none_that_is_wanted_meanwhile(
    faulty: tuple[Rig, Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, backend = faulty
    await rig.turn("b", 20)
    monkeypatch.setattr(backend, "lacks_room", lambda subject, *_: "none" if subject.run == "a" else "")
    rig.want("a", 30)
    await wait_until_async(lambda: rig.switcher.doing == "restore a: none", what="a waits")
    rig.want("c", 40)
    await wait_until_async(lambda: len(rig.results) > 2, what="c's result")
    assert [(one.fence, one.outcome, one.run) for one in rig.results[2:]] == [(40, "READY", "c")]
