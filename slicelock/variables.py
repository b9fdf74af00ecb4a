"""How settings are read from `SLICELOCK_*` variables and a `.env` file, and what is said of one that makes no
sense: its name, the value, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Self, get_args

from dotenv.parser import parse_stream
from pydantic import ByteSize, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from slicelock.errors import ConfigurationError
from slicelock.exits import UsageError
from slicelock.shortage import remedy
from slicelock.signals import put_off
from slicelock.words import gb

PREFIX = "SLICELOCK_"
FILE = Path(".env")
LARGEST_FILE = 1_000_000  # bytes: to look through more would take longer than anybody waits

_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    ByteSize: "a size, for example 40GiB",
}
_BOUNDS = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


class Variables(BaseSettings):
    """Settings of one kind."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=FILE,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        defer_build=True,  # most programs read one kind only
        hide_input_in_errors=True,
    )

    def __new__(cls, *_: object, **__: object) -> Self:
        """Pydantic builds a kind's schema at its first use, in code that loses an interrupt, or takes it for
        a fault of the schema."""
        if not cls.__pydantic_complete__:
            with put_off():
                cls.model_rebuild()
        return super().__new__(cls)

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Read the environment; `overrides`, as a command's options give them, win unless they are None.

        ConfigurationError names the variable or the file, and the remedy; UsageError the option.
        """
        _check_file()
        given = {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls(**given)  # type: ignore[arg-type]
        except ValidationError as failure:
            errors = failure.errors(include_url=False)
            kind = UsageError if all(_field(one) in given for one in errors) else ConfigurationError
            raise kind(" ".join(cls._explain(one, given) for one in errors)) from None

    @classmethod
    def _explain(cls, error: Any, given: Collection[str]) -> str:
        name = _field(error)
        if error["type"] in ("value_error", "assertion_error"):  # in our own words
            why = str(error["ctx"]["error"])
        else:
            value = "its value" if _holds_secret(cls, name) else repr(str(error["input"]))
            why = f"{value} is not allowed; use {_allowed(cls, name)}"
        where = f"--{name.replace('_', '-')}" if name in given else f"{PREFIX}{name.upper()}"
        return f"{where}: {why}." if name else f"{why}."


def _check_file() -> None:
    """Refuse a `.env` that cannot be read or understood: what it should have set would be missing."""
    try:
        why = _wrong_in(FILE) if FILE.is_file() else ""
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    except OSError as error:
        why = error.strerror or str(error)
    if not why:
        return
    raise ConfigurationError(
        f"The settings file {FILE.absolute()} cannot be read: {why}.",
        advice=remedy(why) or "Correct or remove it, or start from another folder.",
    )


def _wrong_in(file: Path) -> str:
    """What makes no sense in a settings file; empty when all does."""
    if (size := file.stat().st_size) > LARGEST_FILE:
        return f"its {gb(size)} are too many for settings"
    with file.open(encoding="utf-8") as text:
        broken = next((part.original.line for part in parse_stream(text) if part.error), None)
    return "" if broken is None else f"line {broken} is not NAME=VALUE"


def _field(error: Any) -> str:
    """The name of the setting that an error is about; empty where it is about several."""
    return str(error["loc"][0]) if error["loc"] else ""


def _types(annotation: Any) -> Iterator[Any]:
    """A type and those within it: of `int | None` and of annotated ones."""
    yield annotation
    for one in get_args(annotation):
        yield from _types(one)


def _holds_secret(kind: type[Variables], name: str) -> bool:
    return name not in kind.model_fields or SecretStr in _types(kind.model_fields[name].annotation)


def _allowed(kind: type[Variables], name: str) -> str:
    """What a setting's value must be, for example `a number, more than 0, at most 60`."""
    field = kind.model_fields[name]
    types = list(_types(field.annotation))
    for one in types:
        if isinstance(one, type) and issubclass(one, Enum):
            return f"one of {', '.join(str(each.value) for each in one)}"
    what = next((words for one, words in _KINDS.items() if one in types), "what this setting takes")
    inner = [part for one in types for part in getattr(one, "metadata", ())]
    bounds = [
        words.format(f"{getattr(part, sign):g}")
        for part in (*field.metadata, *inner)
        for sign, words in _BOUNDS.items()
        if hasattr(part, sign)
    ]
    return f"{what}{''.join(f', {one}' for one in bounds)}"
