"""Modules and optimizers of frameworks that manage memory themselves are refused, wherever they are found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.things import Walk


class Module:
    """As much of a module as is looked at."""

    def __init__(self, *parts: Module, parameters: tuple[Any, ...] = ()) -> None:
        self._parts, self._parameters = parts, parameters

    def modules(self) -> list[Module]:
        return [self, *self._parts]

    named_modules = named_buffers = named_parameters = lambda self, **_: []

    def parameters(self) -> tuple[Any, ...]:
        return self._parameters


class Tensor:
    """No tensor is made here."""


TORCH = SimpleNamespace(Tensor=Tensor, nn=SimpleNamespace(Module=Module))
Engine = type("Engine", (Module,), {"__module__": "deepspeed.runtime.engine"})
Optimizer = type("Optimizer", (), {"__module__": "megatron.core.optimizer", "param_groups": (), "state": {}})


def look(thing: Any, **options: bool) -> None:
    list(Walk(TORCH, **options).of(thing))


@pytest.mark.parametrize(
    "within",
    [
        lambda thing: thing,
        lambda thing: [1, (thing,)],
        lambda thing: {"actor": thing},
        lambda thing: {thing},
        lambda thing: frozenset({thing}),
        lambda thing: lambda: thing,
        lambda thing: {"later": [lambda: {"actor": thing}]},
    ],
)
def test_they_are_found_in_whatever_the_walk_looks_into(within: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Engine belongs to deepspeed.*offload_states.*SelfOffload"):
        look(within(Engine()))
    with pytest.raises(ConfigurationError, match=r"Optimizer belongs to megatron.*SelfOffload"):
        look(within(Optimizer()))
    look(within(Module()))


def test_parts_and_marked_parameters_tell() -> None:
    with pytest.raises(ConfigurationError, match="Module belongs to deepspeed"):
        look({"a": Module(Engine())})
    for mark, framework in (("ds_id", "deepspeed"), ("main_grad", "megatron")):
        with pytest.raises(ConfigurationError, match=f"Module belongs to {framework}"):
            look({"a": Module(parameters=(SimpleNamespace(**{mark: 1}),))})


def test_what_a_callable_returns_is_looked_at_when_it_is_called() -> None:
    look(Engine, call=False)
    with pytest.raises(ConfigurationError, match="Engine belongs to deepspeed"):
        look(Engine)
