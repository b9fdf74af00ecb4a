"""TorchOffload with a stand-in for torch: what a step of an optimizer sets going, and a forked child."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.errors import ConfigurationError
from tests.support.torch_machine import HostMachine

SIZE = 1 << 20


class Storage:
    def __init__(self) -> None:
        self._cdata, self._memory = id(self), (ctypes.c_char * SIZE)()

    def nbytes(self) -> int:
        return len(self._memory)

    def data_ptr(self) -> int:
        return ctypes.addressof(self._memory)

    def resizable(self) -> bool:
        return True

    def resize_(self, nbytes: int) -> None:
        self._memory = (ctypes.c_char * nbytes)()


class Tensor:
    layout, is_leaf, grad = "strided", True, None

    def __init__(self) -> None:
        self._storage = Storage()

    def untyped_storage(self) -> Storage:
        return self._storage


class Optimizer:
    """Of one tensor; its step does nothing but call the hooks."""

    def __init__(self, tensor: Tensor) -> None:
        self.param_groups, self.state = [{"params": [tensor]}], dict[Any, Any]()
        self._hooks: dict[int, Callable[..., None]] = {}

    def register_step_post_hook(self, hook: Callable[..., None]) -> SimpleNamespace:
        number = len(self._hooks)
        self._hooks[number] = hook
        return SimpleNamespace(remove=lambda: self._hooks.pop(number))

    def step(self) -> None:
        for hook in list(self._hooks.values()):
            hook(self, (), {})


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of it as is asked for."""
    parameter = SimpleNamespace(is_lazy=lambda _tensor: False)
    nn = SimpleNamespace(Module=type("Module", (), {}), Parameter=Tensor, parameter=parameter)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, strided="strided", nn=nn))  # type: ignore[arg-type]


def prepared(offload: Any) -> tuple[Optimizer, Any]:
    """An optimizer, and its hook, which has pinned all that it needs."""
    optimizer = Optimizer(Tensor())
    hook = offload(optimizer)
    assert hook.prepare(10)
    return optimizer, hook


def test_a_step_after_the_end_pins_nothing(
    offload: Any, machine: HostMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, hook = prepared(offload)
    assert machine.device(0).pinned
    hook.close()
    assert not machine.device(0).pinned
    with monkeypatch.context() as patched:
        patched.setattr(machine, "memory", None)  # to ask for it fails
        optimizer.step()
    assert hook.offload() == SIZE  # it may be used again
    assert hook.reload() == SIZE


def test_a_step_beside_an_offload_makes_no_second_pool(
    offload: Any, machine: HostMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor, made, begun = Tensor(), list[int](), threading.Event()
    memory = machine.memory

    def slow(index: int) -> Any:
        made.append(index)
        begun.set()
        threading.Event().wait(0.2)
        return memory(index)

    storage = tensor.untyped_storage()._cdata
    machine.on[storage] = None
    optimizer = Optimizer(tensor)
    hook = offload(optimizer)
    machine.on[storage] = 0
    monkeypatch.setattr(machine, "memory", slow)
    stepping = threading.Thread(target=optimizer.step)
    stepping.start()
    begun.wait(10)
    assert hook.offload() == SIZE
    stepping.join()
    assert made == [0]
    assert hook.reload() == SIZE


@pytest.mark.parametrize("call", ["offload", "reload", "state_dict", "prepare"])
def test_a_forked_child_has_nothing_to_read(offload: Any, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    hook = offload(Optimizer(Tensor()))
    hook.offload()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ConfigurationError, match="forked"):
            getattr(hook, call)()
    assert hook.reload() == SIZE


def test_a_forked_child_closes_and_pins_nothing(
    offload: Any, machine: HostMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer, hook = prepared(offload)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 1)
        patched.setattr(hook, "_lock", None)  # another thread may have had it
        optimizer.step()
        hook.close()
    assert machine.device(0).pinned


FORKING = """
import gc, os, sys
from slicelock.hooks.torch_offload.hook import _without_collections

with _without_collections():
    if child := os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(3 if gc.isenabled() else 4)
"""


def test_a_child_that_is_forked_during_an_offload_collects_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], check=False, timeout=30)
    assert done.returncode == 3
