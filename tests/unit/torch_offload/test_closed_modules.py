"""Modules that are away refuse to be called, and are afterwards as they were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.hooks.torch_offload.guard import ClosedModules


class Module:
    """As torch keeps hooks: in a dict, called in its order."""

    def __init__(self) -> None:
        self.hooks: OrderedDict[int, Callable[..., None]] = OrderedDict()
        self.called: list[str] = []
        self.hooks[0] = lambda module, arguments: self.called.append("hook")

    def register_forward_pre_hook(self, hook: Callable[..., None], *, prepend: bool) -> Any:
        self.hooks[key := len(self.hooks)] = hook
        self.hooks.move_to_end(key, last=not prepend)
        return SimpleNamespace(remove=lambda: self.hooks.pop(key))

    def __call__(self) -> None:
        for hook in self.hooks.values():
            hook(self, ())
        self.called.append("forward")


def test_calling_a_closed_module_is_an_error_that_says_what_happened() -> None:
    module, other = Module(), Module()
    before = list(module.hooks.items())
    closed = ClosedModules()
    closed.choose([module])
    for _ in range(2):
        closed.close()
        closed.close()
        with pytest.raises(RuntimeError, match=r"slicelock: this Module is offloaded.*Use it inside a turn"):
            module()
        assert module.called == []
        other()
        closed.open()
        closed.open()
        assert list(module.hooks.items()) == before
    module()
    assert module.called == ["hook", "forward"]
