"""The API as a reference: signatures and docstrings of what a module makes public."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from docs_markdown import code, docstring, sections, table

WIDTH = 100
INTERNAL = ("notice", "acquire")  # of a turn: what the companion and `Slice` call
FOR_TESTS = ("machine",)  # parameters that only tests give
TWINS = {"AsyncSlice": "Slice", "AsyncTurn": "Turn"}


def api(module: str, *names: str) -> str:
    """Some of what a module makes public: `function`, `Class`, or `Class.method` for a method alone."""
    source = importlib.import_module(module)
    return sections(part for name in names for part in described(source, name))


def described(source: Any, name: str) -> Iterator[str]:
    """One public name."""
    owner, _, method = name.partition(".")
    thing = getattr(source, owner)
    if method:
        yield from of_method(owner, method, inspect.getattr_static(thing, method))
    elif inspect.isclass(thing):
        yield from of_class(owner, thing)
    else:
        yield f"### {owner}()"
        yield signature(owner, thing)
        yield docstring(thing)


def of_class(name: str, kind: type[Any]) -> Iterator[str]:
    """A class: how it is made unless the library makes it, its attributes, its methods."""
    yield f"### {name}"
    if not made_elsewhere(kind):
        yield signature(name, kind)
    yield docstring(kind)
    twin = TWINS.get(name)
    attributes = {key: value for key, value in members(kind) if isinstance(value, property)}
    if attributes:
        yield f"Attributes as of `{twin}`." if twin else attribute_table(attributes)
    for key, value in members(kind):
        if not isinstance(value, property) and not (twin and value in shared(kind)):
            yield from of_method(name, key, value)


def shared(kind: type[Any]) -> list[Any]:
    """What a class has from a base, so that its twin has it too."""
    return [value for base in kind.__mro__[1:] for value in vars(base).values()]


def made_elsewhere(kind: type[Any]) -> bool:
    """Whether the constructor takes what only the library has."""
    return "ground" in inspect.signature(kind).parameters or not docstring(kind)


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public members with a docstring, in the order they are defined, those of base classes first."""
    seen: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("slicelock"):
            seen |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    internal = INTERNAL if "Turn" in kind.__name__ else ()
    for name, value in seen.items():
        if (
            name not in internal
            and docstring(value)
            and (isinstance(value, property) or callable(unwrapped(value)))
        ):
            yield name, value


def unwrapped(value: Any) -> Any:
    """The function in a class or static method."""
    return getattr(value, "__func__", value)


def attribute_table(attributes: dict[str, property]) -> str:
    """The attributes with their types."""
    rows = (
        (code(name), code(readable(inspect.signature(value.fget).return_annotation)), docstring(value))
        for name, value in attributes.items()
        if value.fget
    )
    return table(("attribute", "type", "meaning"), rows)


def of_method(owner: str, name: str, value: Any) -> Iterator[str]:
    """One method."""
    yield f"#### {owner}.{name}()"
    yield signature(f"{owner}.{name}", unwrapped(value), bound=not isinstance(value, staticmethod))
    yield docstring(unwrapped(value))


def readable(annotation: object) -> str:
    """An annotation as it is written."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def signature(name: str, thing: Callable[..., Any], *, bound: bool = False) -> str:
    """A signature as code, folded when it is long; `await` where it is awaited."""
    form = inspect.signature(thing)
    parameters = [one for name, one in form.parameters.items() if name not in FOR_TESTS]
    words = list(shown(parameters[1 if bound else 0 :]))
    awaited = "await " if inspect.iscoroutinefunction(thing) else ""
    arrow = (
        ""
        if form.return_annotation in (form.empty, "None") or inspect.isclass(thing)
        else form.return_annotation
    )
    end = f") -> {readable(arrow)}" if arrow else ")"
    line = f"{awaited}{name}({', '.join(words)}{end}"
    if len(line) > WIDTH:
        line = "\n".join([f"{awaited}{name}(", *(f"    {word}," for word in words), end])
    return f"```python\n{line}\n```"


def shown(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Parameters as they are written, with the bare `*` where names must be given from then on."""
    starred = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or one.kind in (one.VAR_POSITIONAL, one.KEYWORD_ONLY)
        yield written(one)


def written(one: inspect.Parameter) -> str:
    """One parameter."""
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    kind = "" if one.annotation is one.empty else f": {readable(one.annotation)}"
    given = "" if one.default is one.empty else f"{' = ' if kind else '='}{one.default!r}"
    return f"{stars}{one.name}{kind}{given}"
