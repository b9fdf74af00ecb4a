"""Checks objects of Kubernetes against the types of its API (lightkube-models), every field, however deep."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin, get_type_hints


def _models(api: str) -> Any:
    """A module of lightkube-models, which takes no more from lightkube itself than a dataclass's parts."""
    core = types.ModuleType("lightkube.core.schema")
    core.DictMixin = object  # type: ignore[attr-defined]
    core.field, core.dataclass = dataclasses.field, dataclasses.dataclass  # type: ignore[attr-defined]
    sys.modules.setdefault("lightkube.core", types.ModuleType("lightkube.core"))
    sys.modules.setdefault("lightkube.core.schema", core)
    group, _, version = api.rpartition("/")
    return importlib.import_module(f"lightkube.models.{group.split('.')[0] or 'core'}_{version}")


def complaints(thing: dict[str, Any]) -> list[str]:
    """What is wrong with an object; empty when it fits."""
    kind = getattr(_models(thing["apiVersion"]), thing["kind"])
    return list(_against(thing, kind, thing["kind"]))


def _against(value: Any, kind: Any, where: str) -> Iterator[str]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        yield from _against(value, next(one for one in inner if one is not type(None)), where)
    elif dataclasses.is_dataclass(kind):
        yield from _fields(value, kind, where)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where} is no list"
        for number, item in enumerate(value):
            yield from _against(item, inner[0], f"{where}[{number}]")
    elif origin is dict:
        for name, item in value.items():
            yield from _against(item, inner[1], f"{where}.{name}")
    elif isinstance(kind, type) and kind in (str, int, bool, float) and not _is_a(value, kind):
        yield f"{where} is {value!r}, no {kind.__name__}"


def _is_a(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _fields(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where} is no {kind.__name__}"
        return
    hints, fields = get_type_hints(kind), dataclasses.fields(kind)
    known = {one.metadata.get("json", one.name): one for one in fields}
    for name, item in value.items():
        if name not in known:
            yield f"{where} has no field {name}"
        else:
            yield from _against(item, hints[known[name].name], f"{where}.{name}")
    for name, one in known.items():
        if (
            one.default is dataclasses.MISSING
            and one.default_factory is dataclasses.MISSING
            and name not in value
        ):
            yield f"{where} lacks {name}"
