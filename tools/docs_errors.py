"""The errors as a tree and as a table, with the exit code that the command line gives each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from docs_markdown import code, docstring, table

from slicelock import errors
from slicelock.cli.failures import ExitCode, exit_code

CODES = {
    ExitCode.DONE: "done",
    ExitCode.OTHER: "anything else",
    ExitCode.USAGE: "the command was called wrongly",
    ExitCode.SETTINGS: "a setting is missing or makes no sense",
    ExitCode.UNREACHABLE: "Redis cannot be reached, or did not answer",
    ExitCode.NOT_GRANTED: "the turn did not begin",
    ExitCode.TURN_LOST: "the turn began and was lost",
}


def classes(base: type[Exception] = errors.SlicelockError) -> Iterator[type[Exception]]:
    """Every error of `slicelock.errors`, each after the one it comes from."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from classes(kind)


def tree() -> str:
    """The tree from the module's docstring."""
    drawing = docstring(errors).split("\n\n", 1)[1]
    return f"```\n{drawing}\n```"


def table_of_errors() -> Iterator[tuple[str, str, str]]:
    """A row for each error."""
    for kind in classes():
        said = inspect.cleandoc(kind.__doc__ or "")
        yield code(kind.__name__), said, code(int(exit_code(kind())))


def of_all() -> str:
    """Every error with what it means and its exit code."""
    return table(("error", "default message", "exit code"), table_of_errors())


def exit_codes() -> str:
    """Every exit code."""
    return table(("code", "meaning"), ((code(int(one)), CODES[one]) for one in sorted(ExitCode)))
