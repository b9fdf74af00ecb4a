"""After a kill the GPU is handed on only when what the killed processes had has come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.fake_driver import GIB, FakeGpus
from tests.support.gpu_rig import GPU, GpuRig, processes
from tests.support.wait import wait_until_async


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[GpuRig]:
    async with GpuRig(tmp_path, facts={"fallback": ("kill",)}) as made:
        await made.idle()
        yield made


@pytest.fixture
def victim() -> Iterator[int]:
    with processes(1, SLICELOCK_RUN="a") as [pid]:
        yield pid


@dataclass
class Kept:
    """What the driver keeps of a process that has ended."""

    pid: int
    bytes: int = 0
    listed: bool = False
    looks: int = 0


@pytest.fixture
def kept(rig: GpuRig, victim: int, monkeypatch: pytest.MonkeyPatch) -> Kept:
    what, memory, users = Kept(victim), FakeGpus.memory, FakeGpus.users

    def stays() -> bool:
        return rig.world.state(victim) == "gone"

    def memory_with(self: FakeGpus, uuid: str) -> tuple[int, int]:
        used, free = memory(self, uuid)
        what.looks += stays()
        return (used + what.bytes, free - what.bytes) if stays() else (used, free)

    def users_with(self: FakeGpus, uuid: str) -> dict[int, int | None]:
        return users(self, uuid) | ({victim: None} if stays() and what.listed else {})

    monkeypatch.setattr(FakeGpus, "memory", memory_with)
    monkeypatch.setattr(FakeGpus, "users", users_with)
    return what


async def loaded(rig: GpuRig, pid: int, size: int = 40 * GIB) -> None:
    rig.has("a", [pid], size)
    rig.registry.learn({"a": {"rev": "1", "job": "j", "processes": {}}})
    assert (await rig.turn("a", 10)).outcome == "READY"


@pytest.mark.parametrize("untold", [False, True])
async def test_memory_that_does_not_come_back_blocks_the_slice(
    rig: GpuRig, victim: int, kept: Kept, untold: bool
) -> None:
    await loaded(rig, victim)
    rig.world.change(victim, untold=untold)
    kept.bytes = 40 * GIB
    result = await rig.turn("b", 20)
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
    words = (
        f"{40 * GIB} bytes are still in use on {GPU}, {2 * GIB} may be, although its processes were killed"
    )
    assert words in result.reason
    rig.registry.dead_runs.add("a")
    result = await rig.turn("b", 30)  # the run is dead: all the same nobody gets the GPU
    assert (result.outcome, result.what, result.run) == ("FAILED", "evict", "a")
    assert words in result.reason
    assert rig.states() == {"a": "loaded"}
    kept.bytes = 0
    await wait_until_async(lambda: rig.states() == {}, what="run a is dropped")
    assert (await rig.turn("b", 40)).outcome == "READY"


async def test_memory_is_waited_for(rig: GpuRig, victim: int, kept: Kept) -> None:
    await loaded(rig, victim)
    kept.bytes = 40 * GIB
    rig.want("b", 20)
    await wait_until_async(lambda: kept.looks > 3)
    assert len(rig.results) == 1
    kept.bytes = 0
    await wait_until_async(lambda: len(rig.results) > 1)
    assert rig.results[-1].outcome == "READY"
    assert rig.states() == {"b": "loaded"}


async def test_a_little_process_must_be_gone_as_well(rig: GpuRig, victim: int, kept: Kept) -> None:
    await loaded(rig, victim, GIB)
    kept.bytes = GIB
    assert f"{GIB} bytes are still in use on {GPU}, {GIB // 2} may be" in (await rig.turn("b", 20)).reason


async def test_a_killed_process_that_nvml_still_lists_blocks_the_slice(
    rig: GpuRig, victim: int, kept: Kept
) -> None:
    await loaded(rig, victim)
    kept.listed = True
    result = await rig.turn("b", 20)
    assert f"process {victim} is still on {GPU}, although its processes were killed" in result.reason


async def test_what_others_take_meanwhile_is_no_matter(rig: GpuRig, victim: int, kept: Kept) -> None:
    with processes(1) as [other]:
        await loaded(rig, victim)
        kept.bytes = 40 * GIB
        rig.want("b", 20)
        await wait_until_async(lambda: kept.looks > 3)
        rig.world.add(other, {GPU: 30 * GIB})
        kept.bytes = 0
        await wait_until_async(lambda: len(rig.results) > 1)
        assert rig.results[-1].outcome == "READY"
