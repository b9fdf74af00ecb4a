"""TorchOffload when something fails half-way: no byte is lost, and what is where is said."""

from __future__ import annotations

from typing import Any

import pytest

from slicelock.errors import RestoreFailed, SnapshotFailed
from slicelock.hooks import TorchOffload
from tests.support.torch_machine import HostMachine

torch = pytest.importorskip("torch")

SIZE = 2 << 20  # more than what is allocated together
COUNT = SIZE // 4


def tensors_in_chunks(count: int = 6) -> list[Any]:
    return [torch.full((COUNT,), float(number)) for number in range(count)]  # each a chunk of its own


def failing_at(what: str, number: int) -> Any:
    seen = [0]

    def fail(called: str) -> None:
        seen[0] += called == what
        if called == what and seen[0] == number:
            raise OSError(f"{what} {number}")

    return fail


def intact(tensors: list[Any]) -> bool:
    return all(torch.equal(one, torch.full((COUNT,), float(number))) for number, one in enumerate(tensors))


@pytest.mark.parametrize(("what", "number"), [("wait", 3), ("give_back", 1), ("wait", 6)])
def test_a_failing_offload_brings_back_what_had_left(
    offload: Any, machine: HostMachine, what: str, number: int
) -> None:
    tensors = tensors_in_chunks()
    hook = offload(tensors)
    machine.device(0).fail = failing_at(what, number)
    with pytest.raises(SnapshotFailed, match=f"half-way: {what} {number} What had been offloaded is back"):
        hook.offload()
    assert intact(tensors)
    assert hook.offload() == 6 * SIZE
    hook.reload()
    assert intact(tensors)


@pytest.mark.parametrize("what", ["settle", "out", "check"])
def test_a_refusal_before_anything_has_left_changes_nothing(
    offload: Any, machine: HostMachine, what: str
) -> None:
    tensors = tensors_in_chunks()
    hook = offload(tensors)
    machine.device(0).fail = failing_at(what, 1)
    with pytest.raises(OSError, match=what):
        hook.offload()
    assert intact(tensors)
    assert hook.reload() == 0


def test_what_cannot_be_brought_back_is_said_and_comes_with_the_next_reload(
    offload: Any, machine: HostMachine
) -> None:
    tensors = tensors_in_chunks()
    hook = offload(tensors)
    device = machine.device(0)

    def fail(what: str) -> None:
        if what == "allocate" or (what == "wait" and device.free == 0):
            raise MemoryError(what)
        if what == "wait" and sum(one.untyped_storage().nbytes() == 0 for one in tensors) == 2:
            device.free = 0
            raise OSError("the device fell off the bus")

    device.fail = fail
    with pytest.raises(
        SnapshotFailed, match=r"fell off the bus 4 MiB could not be brought back.*until a reload"
    ):
        hook.offload()
    stayed = [number for number, one in enumerate(tensors) if one.untyped_storage().nbytes()]
    assert len(stayed) == 4
    assert all(torch.equal(tensors[number], torch.full((COUNT,), float(number))) for number in stayed)
    device.free, device.fail = 1 << 40, lambda _what: None
    assert hook.reload() == 2 * SIZE
    assert intact(tensors)


@pytest.mark.parametrize(("what", "number"), [("allocate", 4), ("in", 1), ("in", 6)])
def test_a_failing_reload_leaves_all_of_it_in_host_memory(
    offload: Any, machine: HostMachine, what: str, number: int
) -> None:
    tensors = tensors_in_chunks()
    hook = offload(tensors)
    hook.offload()
    machine.device(0).fail = failing_at(what, number)
    with pytest.raises(OSError, match=what):
        hook.reload()
    assert all(one.untyped_storage().nbytes() == 0 for one in tensors)
    assert hook.reload() == 6 * SIZE
    assert intact(tensors)


def test_one_failing_device_keeps_the_others_off_too(offload: Any, machine: HostMachine) -> None:
    tensors = tensors_in_chunks()
    machine.on[tensors[5].untyped_storage()._cdata] = 1
    hook = offload(tensors)
    hook.offload()
    machine.device(1).fail = failing_at("allocate", 1)
    with pytest.raises(OSError, match="allocate"):
        hook.reload()
    assert all(one.untyped_storage().nbytes() == 0 for one in tensors)
    hook.reload()
    assert intact(tensors)


def test_no_reload_without_room(offload: Any, machine: HostMachine) -> None:
    tensor = torch.ones(1 << 20)
    hook = offload(tensor)
    hook.offload()
    machine.device(0).free = 1 << 20
    with pytest.raises(
        RestoreFailed, match="host:0 has 1 MiB free, and 4 MiB are to come back; nothing was restored"
    ):
        hook.reload()
    assert not [way for way, _ in machine.device(0).copied if way == "in"]
    machine.device(0).free = 1 << 30
    hook.reload()
    assert tensor.sum() == 1 << 20


def test_closing_reloads_first(machine: HostMachine) -> None:
    tensor = torch.ones(100)
    hook = TorchOffload(tensor, machine=machine)
    hook.offload()
    hook.close()
    assert tensor.sum() == 100
    assert (hook.pool_bytes, machine.device(0).pinned) == (0, {})


def test_one_device_that_keeps_its_memory_pinned_does_not_keep_the_others(machine: HostMachine) -> None:
    tensors = tensors_in_chunks(2)
    machine.on[tensors[1].untyped_storage()._cdata] = 1
    hook = TorchOffload(tensors, machine=machine)
    hook.offload()
    [pinned] = machine.device(0).pinned.items()
    machine.device(0).pinned.clear()
    with pytest.raises(KeyError):
        hook.close()
    assert intact(tensors)
    assert not machine.device(1).pinned
    machine.device(0).pinned.update([pinned])
    hook.close()
    assert (hook.pool_bytes, machine.device(0).pinned) == (0, {})
