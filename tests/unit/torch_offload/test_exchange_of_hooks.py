"""Two TorchOffload hooks that change places over an exchange page, and failures on the way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from slicelock.exchange import Exchange, SideState
from slicelock.hooks import TorchOffload
from tests.support.torch_machine import HostMachine

torch = pytest.importorskip("torch")

CHUNK = 64 << 10


def chunks_of(value: float, count: int = 8) -> list[Any]:
    return [torch.full((CHUNK // 4,), value) for _ in range(count)]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page"
    Exchange.create(path, {"host:0": CHUNK}, margin=0).close()
    return path


class Counting:
    """A device whose tensors take room: what is freed by one machine is free for the other."""

    def __init__(self, machine: HostMachine, tensors: list[Any]) -> None:
        self.device, self.tensors = machine.device(0), tensors
        self.given = 0

    def give_back(self) -> int:
        gone = sum(CHUNK for one in self.tensors if not one.untyped_storage().nbytes())
        given, self.given = gone - self.given, gone
        return given


def test_one_leaves_and_the_other_comes(page: Path) -> None:
    leaving, coming = HostMachine(), HostMachine()
    mine, others = chunks_of(1.0), chunks_of(2.0)
    a, b = TorchOffload(mine, machine=leaving), TorchOffload(others, machine=coming)
    b.offload()
    leaving.device(0).give_back = Counting(leaving, mine).give_back  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: a.offload(exchange=page))
    thread.start()
    assert b.reload(exchange=page) == 8 * CHUNK
    thread.join()
    with Exchange(page) as seen:
        progress = seen.progress("host:0")
    assert (progress.leaver, progress.comer) == (SideState.DONE, SideState.DONE)
    assert (progress.freed, progress.taken) == (8 * CHUNK, 8 * CHUNK)
    assert all(bool((one == 2).all()) for one in others)
    a.reload()
    assert all(bool((one == 1).all()) for one in mine)
    a.close()
    b.close()


def test_a_leaver_that_fails_takes_its_memory_back(page: Path) -> None:
    machine = HostMachine()
    tensors = chunks_of(1.0)
    hook = TorchOffload(tensors, machine=machine)
    seen: list[str] = []

    def fail(what: str) -> None:
        seen.append(what)
        if seen.count("give_back") == 3 and what == "give_back":
            raise OSError("no more")

    machine.device(0).fail = fail
    with pytest.raises(SnapshotFailed, match="What had been offloaded is back on the device"):
        hook.offload(exchange=page)
    assert all(bool((one == 1).all()) for one in tensors)
    with Exchange(page) as after:
        assert after.progress("host:0").leaver == SideState.GAVE_UP
    hook.close()


def test_a_refusal_is_the_leavers_too(page: Path) -> None:
    machine = HostMachine()
    tensors = chunks_of(1.0)
    hook = TorchOffload(tensors, machine=machine)

    def fail(what: str) -> None:
        if what == "check":
            raise SnapshotFailed("there are graphs")

    machine.device(0).fail = fail
    with pytest.raises(SnapshotFailed, match="there are graphs"):
        hook.offload(exchange=page)
    assert all(bool((one == 1).all()) for one in tensors)
    hook.close()


def test_a_comer_that_fails_gives_everything_back(page: Path) -> None:
    machine = HostMachine()
    tensors = chunks_of(2.0)
    hook = TorchOffload(tensors, machine=machine)
    hook.offload()
    with Exchange(page) as other:
        other.leaving("host:0").take_back(patience=0)
    with pytest.raises(RestoreFailed, match="needs its memory back"):
        hook.reload(exchange=page)
    with Exchange(page) as after:
        assert after.progress("host:0").comer == SideState.GAVE_UP
    assert not any(one.untyped_storage().nbytes() for one in tensors)
    assert hook.reload() == 8 * CHUNK
    assert all(bool((one == 2).all()) for one in tensors)
    hook.close()


def test_devices_that_are_not_on_the_page_go_as_ever(tmp_path: Path) -> None:
    path = tmp_path / "other"
    Exchange.create(path, {"host:7": 0}, margin=0).close()
    tensor = torch.ones(100)
    hook = TorchOffload(tensor, machine=HostMachine())
    assert hook.offload(exchange=path) == 400
    assert hook.reload(exchange=path) == 400
    assert tensor.sum() == 100
    hook.close()
