"""The command line as a reference: what `--help` of each command says, from the same source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docs_markdown import code, sections, table

from slicelock.cli.app import everything

ROOT = Path(__file__).resolve().parent.parent
HIDDEN = ("help", "debug", "install_completion", "show_completion")  # `--debug` is everywhere


def commands() -> str:
    """Every command, each after its group."""
    root = typer.main.get_command(everything())
    return sections(part for path, command in walk("slicelock", root) for part in section(path, command))


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command and all below it, in the order that `--help` lists them."""
    yield path, command
    context = command.make_context(path, [], resilient_parsing=True)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        below = command.get_command(context, name)
        if not getattr(below, "hidden", False):
            yield from walk(f"{path} {name}", below)


def section(path: str, command: Any) -> Iterator[str]:
    """One command: how it is called, what it does, its options, an example."""
    listed = [one for one in command.params if one.name not in HIDDEN and not getattr(one, "hidden", False)]
    group = hasattr(command, "list_commands")
    arguments = [word(one) for one in listed if is_argument(one)]
    yield f"{'#' * min(2 + path.count(' '), 4)} {path}"
    yield f"```\n{' '.join([path, 'COMMAND' if group else '[OPTIONS]', *arguments])}\n```"
    yield plain(command.help or "")
    if listed:
        rows = ((name(one), default(one), plain(one.help or "")) for one in listed)
        yield table(("option", "default", "meaning"), rows)
    if command.epilog:
        yield re.sub(r"^([A-Z][a-z ]+): (.+)$", r"\1: `\2`", command.epilog)


def is_argument(parameter: Any) -> bool:
    """Whether it is given by its place."""
    return str(parameter.param_type_name) == "argument"


def word(argument: Any) -> str:
    """An argument as the usage shows it."""
    shown = str(argument.metavar or argument.name.upper())
    return shown if argument.required else f"[{shown}]"


def name(parameter: Any) -> str:
    """A parameter's names, and what follows them."""
    if is_argument(parameter):
        return code(parameter.metavar or parameter.name.upper())
    names = ", ".join(code(one) for one in parameter.opts)
    taken = code(parameter.metavar or parameter.name.upper().rstrip("_"))
    return names if parameter.is_flag else f"{names} {taken}"


def default(parameter: Any) -> str:
    """A default that says something."""
    value = parameter.default
    return "" if value is None or value in (False, "", ()) or callable(value) else code(value)


def plain(text: str) -> str:
    """A help text in one paragraph."""
    return " ".join(text.split())


def agent_help() -> str:
    """What `slicelock-agent --help` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "slicelock_agent", "--help"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}", "NO_COLOR": "1"},
    )
    return f"```\n{done.stdout.strip()}\n```"
