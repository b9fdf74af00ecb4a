"""Puts the commands together and turns errors into exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from slicelock.cli import failures, options
from slicelock.cli.console import say, show_json
from slicelock.cli.failures import ExitCode
from slicelock.keys import SCHEMA
from slicelock.output import UNREAD, OutputLost
from slicelock.version import version as installed_version
from slicelock.words import brief

HOMES = {
    "demo": "demo",
    "up": "up",
    "status": "status",
    "top": "top",
    "events": "events",
    "report": "report",
    "timeline": "timeline",
    "run": "run",
    "revoke": "status",
    "slice": "drain",  # the last of the modules that add to the group
    "doctor": "doctor",
    "exporter": "exporter",
    "bench": "bench",
    "version": "app",
}
"""Where each command is, from the first that one needs to the last. A program imports only the one that it is
asked for: all of them take as long to import as everything else."""


def _no_type(ctx: object) -> None:
    """What stands behind an argument in the help."""


def _plain(params: list[Any]) -> list[Any]:
    """Help shows nothing behind a flag or an argument, and behind an option its name, not Python's type."""
    for one in params:
        if getattr(one, "is_flag", False):
            one.metavar = ""
        elif one.param_type_name == "argument":
            one.display_type_rich = _no_type  # newer versions of typer ask it
        elif one.param_type_name == "option" and not isinstance(one.default, Enum):  # its choices are shown
            one.metavar = one.metavar or str(one.name).upper().rstrip("_")
    return params


@contextmanager
def _parsing(ctx: Any) -> Generator[None]:
    """Some of the parser's errors do not say to which command they belong."""
    try:
        yield
    except Exception as error:
        if getattr(error, "ctx", ctx) is None:
            setattr(error, "ctx", ctx)  # noqa: B010 - only errors of the parser have it
        raise


class _Command(TyperCommand):
    """A command of slicelock's."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _parsing(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        for one in self.get_params(ctx):
            if one.name != "command":  # another program's may be any bytes
                _check_text(ctx, one)
        return super().invoke(ctx)


def _check_text(ctx: Any, param: Any) -> None:
    """A usage error for text that cannot be told to others."""
    value = ctx.params.get(param.name)
    for one in cast(list[object], value) if isinstance(value, list) else [value]:
        try:
            _ = one.encode() if isinstance(one, str) else None
        except UnicodeEncodeError:
            hint = param.metavar if param.param_type_name == "argument" else param.opts[0]
            raise typer.BadParameter(f"{one!r} is not UTF-8.", ctx, param_hint=hint) from None


class _Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _parsing(ctx):
            return super().parse_args(ctx, args)


class _Ordered(_Group):
    """Lists the commands from the first that one needs to the last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=list(HOMES).index)


class Commands(typer.Typer):
    """A group to which a module adds its commands."""

    def __init__(self, cls: type[TyperGroup] = _Group, **options: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        """Make a function a command, as typer does."""
        return super().command(name, cls=_Command, **options)


app = Commands(
    cls=_Ordered,
    name="slicelock",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here: slicelock demo",
)


def everything() -> Commands:
    """The command line with all its commands."""
    for home in HOMES.values():
        import_module(f"slicelock.cli.{home}")
    return app


def _asked(arguments: Sequence[str]) -> Commands:
    """The command line with the command that is asked for, or with all of them: for help, and for words that
    are none's."""
    if not arguments or arguments[0] not in HOMES:
        return everything()
    import_module(f"slicelock.cli.{HOMES[arguments[0]]}")
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (`failures.ExitCode`, or the command's own for `run`).

    141, as of a program that dies of SIGPIPE, when the reader of its output has gone.
    """
    options.STATE.debug = False
    code = _call(arguments)
    try:
        sys.stdout.flush()
    except OutputLost as error:
        return _report(error)
    return code


def _call(arguments: Sequence[str] | None) -> int:
    try:
        asked = _asked(sys.argv[1:] if arguments is None else arguments)
        result = asked(args=arguments, prog_name="slicelock", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, the user gets one line
        return _report(error)
    return result if isinstance(result, int) else ExitCode.DONE


def _report(error: Exception) -> int:
    if options.STATE.debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, OutputLost) and error.unread:
        return UNREAD
    # Errors of the parser: which class it is depends on the version of typer.
    message = getattr(error, "format_message", None)
    if callable(message):
        text = str(message()).replace(": Value error, ", ": ").strip()  # of some versions
        if text:  # none where a group without a command has printed its help
            sentence = brief(text if text.endswith("?") else f"{text.rstrip('.')}.")
            say(f"slicelock: {sentence} See: {_path(error)} --help")
        return int(getattr(error, "exit_code", ExitCode.USAGE))
    say(f"slicelock: {failures.one_line(error)}")
    return failures.exit_code(error)


def _path(error: Exception) -> str:
    return str(getattr(getattr(error, "ctx", None), "command_path", "slicelock"))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"slicelock {installed_version()}")
        raise typer.Exit


@app.callback()
def slicelock(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Several reinforcement-learning jobs take turns on the same accelerators, coordinated by Redis."""


@app.command("version", epilog="Example: slicelock version --json")
def version_(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Show the version, and the schema of the pools it can share."""
    facts = {"version": installed_version(), "schema": SCHEMA}
    if as_json:
        show_json(facts)
    else:
        print(f"slicelock {facts['version']} (schema {facts['schema']})")
