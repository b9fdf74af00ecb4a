"""Every command explains itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from slicelock.cli.app import HOMES, everything
from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group below a group."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


EVERY = dict(commands(typer.main.get_command(everything())))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_explains_and_has_an_example(call: Call, path: tuple[str, ...]) -> None:
    ended = call(*path, "--help")
    assert ended.code == 0 and ended.err == ""
    assert "Example: slicelock " + " ".join(path) in " ".join(ended.out.split())
    assert EVERY[path].help


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    assert [one.name for one in EVERY[path].params if not getattr(one, "help", None)] == []


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_nothing_is_shown_behind_a_flag_and_no_type_of_python_anywhere(
    call: Call, path: tuple[str, ...]
) -> None:
    shown = call(*path, "--help").out
    assert not re.findall(r"<(?:bool|str|int|float)\b.*?>", shown)
    assert re.search(r"--help +-h +Show", shown)


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_what_cannot_be_parsed_leads_to_the_help_of_its_command(call: Call, path: tuple[str, ...]) -> None:
    for words in (("--debug=3",), ("--nonsense",)):
        ended = call(*path, *words)
        assert ended.code == ExitCode.USAGE
        assert ended.complaint.endswith(f"See: {' '.join(('slicelock', *path))} --help")


def test_no_name_of_python_shows_as_what_an_option_takes(call: Call) -> None:
    for command in EVERY.values():
        assert not [one.metavar for one in command.params if str(one.metavar).endswith("_")]
    assert re.search(r"--slice +SLICE +Only", call("events", "--help").out)


def test_the_commands_are_those_that_are_listed() -> None:
    assert {path[0] for path in EVERY} == set(HOMES)


def test_a_program_finds_its_command_where_it_looks() -> None:
    for (name, *_), command in EVERY.items():
        if name not in ("slice", "bench"):
            assert command.callback.__module__ == f"slicelock.cli.{HOMES[name]}"


@pytest.mark.parametrize("group", ["slice", "bench"])
def test_a_program_imports_the_commands_that_it_is_asked_for_and_no_others(group: str) -> None:
    look = "import sys, slicelock.cli as c; c.main([sys.argv[1], '--help']); print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", look, group],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "160"},
    )
    *shown, modules = ended.stdout.splitlines()
    listed = {words[1] for line in shown if len(words := line.split()) > 1 and words[0] == "│"}
    assert listed >= {path[1] for path in EVERY if path[0] == group and len(path) > 1}
    assert {"slicelock.cli.top", "slicelock.cli.doctor", "slicelock.client"}.isdisjoint(modules.split())


def test_what_can_be_read_can_be_read_by_programs() -> None:
    readable = (
        "demo",
        "status",
        "doctor",
        "version",
        "bench handoff",
        "bench throughput",
        "bench queue",
        "slice list",
    )
    for path in readable:
        assert "--json" in {opt for one in EVERY[tuple(path.split())].params for opt in one.opts}, path


@pytest.mark.parametrize("words", [(), ("slice",), ("bench",)], ids=" ".join)
def test_a_missing_command_is_a_usage_error_and_shows_help(call: Call, words: tuple[str, ...]) -> None:
    ended = call(*words)
    assert (ended.code, ended.err) == (2, "")
    assert "Usage: slicelock" in ended.out


@pytest.mark.parametrize(
    "start", [["-m", "slicelock"], ["-c", "import sys, slicelock.cli as c; sys.exit(c.main())"]]
)
def test_starts_as_a_program(start: list[str]) -> None:
    ended = subprocess.run([sys.executable, *start, "--version"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("slicelock ")


def test_version_names_the_schema(call: Call) -> None:
    assert '"schema": "1"' in call("version", "--json").out
    assert call("version").out.startswith("slicelock ")
