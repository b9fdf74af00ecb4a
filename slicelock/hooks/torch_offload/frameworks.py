"""Modules and optimizers whose memory a framework manages: TorchOffload must not touch it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slicelock.errors import ConfigurationError

FRAMEWORKS = {
    "deepspeed": "engine.offload_states() before a turn ends and engine.reload_states() when one has begun",
    "megatron": "its own offload of buffers before a turn ends and their reload when one has begun",
}
MARKS = {"ds_id": "deepspeed", "main_grad": "megatron"}
"""Attributes that these frameworks put on the parameters whose memory they manage."""


def refuse_managed_module(module: Any) -> None:
    """ConfigurationError, with the way out, when it or a part of it belongs to such a framework."""
    root = next((_root(part) for part in module.modules() if _root(part) in FRAMEWORKS), "")
    _refuse(module, root or _marked(module.parameters()))


def refuse_managed_optimizer(optimizer: Any) -> None:
    """ConfigurationError, with the way out, when it belongs to such a framework."""
    _refuse(optimizer, _root(optimizer))


def _refuse(thing: Any, framework: str) -> None:
    if framework in FRAMEWORKS:
        raise ConfigurationError(
            f"{type(thing).__name__} belongs to {framework}, which keeps tensors in buffers of its own; "
            "TorchOffload cannot see those.",
            advice=f"Use {FRAMEWORKS[framework]}, and register slicelock.hooks.SelfOffload().",
        )


def _root(thing: Any) -> str:
    return type(thing).__module__.partition(".")[0]


def _marked(parameters: Iterable[Any]) -> str:
    for parameter in parameters:
        for mark, framework in MARKS.items():
            if hasattr(parameter, mark):
                return framework
    return ""
