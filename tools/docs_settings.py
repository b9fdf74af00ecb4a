"""The settings as a table: variable, default, what is allowed, and the docstring."""

from __future__ import annotations

import ast
import inspect
from enum import Enum
from itertools import pairwise
from typing import Any, cast

from docs_markdown import code, table

from slicelock import settings

SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def own_fields(kind: type[Any]) -> dict[str, Any]:
    """The fields that a class adds to those of the classes it comes from."""
    inherited = {name for base in kind.__mro__[1:] for name in getattr(base, "model_fields", {})}
    return {name: field for name, field in kind.model_fields.items() if name not in inherited}


def default(field: Any) -> str:
    """A default as one would write it in the environment; computed ones are in the text."""
    value = field.default
    if field.default_factory is not None:
        return "see text"
    match value:
        case None | ():
            return "–"
        case Enum():
            return code(value.value)
        case tuple():
            return code(",".join(str(one) for one in cast(tuple[object, ...], value)))
        case float():
            return code(f"{value:g}")
        case _:
            return code(value)


def allowed(field: Any) -> str:
    """The limits of a number."""
    limits = [
        f"{sign} {getattr(rule, name):g}"
        for rule in field.metadata
        for name, sign in SIGNS.items()
        if hasattr(rule, name)
    ]
    return ", ".join(limits)


def meanings(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field that a class adds. Pydantic could read them too, but would do so at the
    start of every program: 20 ms."""
    (declared,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(declared, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in pairwise(declared.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found


def table_of(kind: type[Any]) -> str:
    """One class's own settings."""
    texts = meanings(kind)
    return table(
        ("variable", "default", "allowed", "meaning"),
        (
            (code(settings.PREFIX + name.upper()), default(field), allowed(field), texts[name])
            for name, field in own_fields(kind).items()
        ),
    )


def of_class(name: str) -> str:
    """The settings of the class `name` in `slicelock.settings`."""
    return table_of(getattr(settings, name))
