"""A slice's own settings, as `slicelock slice declare --set` takes them; they win over its agents'."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from slicelock.settings import WAYS

# A number in Lua is a double.
SIZE, FLAG = TypeAdapter(Annotated[ByteSize, Field(ge=0, le=2**53)]), TypeAdapter(bool)

Option = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of this slice that wins over its agents': fallback=hooks,cuda, min_free=40GiB, "
        "zero_residue=yes. May be repeated.",
    ),
]


def _ways(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not set(parts) <= set(WAYS):
        raise ValueError(f"its parts are among {', '.join(WAYS)}")
    return ",".join(parts)


def _size(text: str) -> int:
    try:
        return int(SIZE.validate_python(text))
    except ValidationError:
        raise ValueError("it is no size; for example 40GiB") from None


def _flag(text: str) -> bool:
    try:
        return FLAG.validate_python(text)
    except ValidationError:
        raise ValueError("it is neither yes nor no") from None


READERS: dict[str, Callable[[str], Any]] = {"fallback": _ways, "min_free": _size, "zero_residue": _flag}


def read(options: Iterable[str]) -> dict[str, Any]:
    """The settings; a usage error names the option that makes no sense."""
    settings: dict[str, Any] = {}
    for option in options:
        name, sign, text = option.partition("=")
        if not sign or name not in READERS:
            raise typer.BadParameter(
                f"{option!r} is not NAME=VALUE with a NAME of {', '.join(READERS)}.", param_hint="--set"
            )
        try:
            settings[name] = READERS[name](text)
        except ValueError as failure:
            raise typer.BadParameter(f"{option!r} makes no sense: {failure}.", param_hint="--set") from None
    return settings
