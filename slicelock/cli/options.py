"""Options and arguments that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from slicelock.errors import ConfigurationError
from slicelock.keys import check_name


@dataclass(slots=True)
class _State:
    debug: bool = False


STATE = _State()


def _set_debug(value: bool) -> bool:
    STATE.debug = STATE.debug or value
    return value


def checked_name(kind: str, value: str, option: str | None = None) -> str:
    """A name from the command line; a usage error, which names the `option`, when it is not allowed."""
    try:
        return check_name(kind, value)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def name_of(kind: str, *, or_none: bool = False) -> Callable[[str | None], str | None]:
    """Checks an option or argument that is a name, if it is given. `or_none`: an empty one is none."""

    def check(value: str | None) -> str | None:
        return value if value is None or (or_none and not value) else checked_name(kind, value)

    return check


def slice_name(value: str) -> str:
    """Checks an argument that must be a slice's name."""
    return checked_name("slice", value)


Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show tracebacks.", callback=_set_debug, is_eager=True, show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.", show_default=False)]
Pool = Annotated[
    str | None,
    typer.Option(
        "--pool", help="The pool. Default: SLICELOCK_POOL, else `default`.", callback=name_of("pool")
    ),
]
SliceName = Annotated[
    str,
    typer.Argument(metavar="SLICE", help="The slice's name.", callback=slice_name),
]
