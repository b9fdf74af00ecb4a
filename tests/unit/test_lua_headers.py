"""A script's header is a contract: it says what `wire.py` says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import get_type_hints

import pytest

from slicelock import wire
from slicelock.scripts import lua_root

ARGUMENT = re.compile(r"-- ARGV\[(\d+)\] (\w+) \((.+)\)")
OUTCOME = re.compile(r"-- ([A-Z][A-Z_]+)\b[ :](.+)")
BY_SCRIPT = pytest.mark.parametrize("command", wire.SCRIPT_CALLS, ids=lambda command: command.script)


@dataclass
class Header:
    """The comment block at the top of a script."""

    sentence: str
    keys: list[str] = field(default_factory=list[str])
    arguments: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    idempotent: str = ""


def read(path: Path) -> Header:
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("--") or line.startswith("--- @include"):
            break
        lines.append(line)
    header = Header(lines[0].removeprefix("-- "))
    for line in lines[1:]:
        if line.startswith("-- KEYS["):
            header.keys.append(line.removeprefix("-- "))
        elif match := ARGUMENT.match(line):
            header.arguments.append((int(match[1]), match[2], match[3]))
        elif line.startswith("-- Idempotent: "):
            header.idempotent = line
        elif match := OUTCOME.match(line):
            header.outcomes[match[1]] = match[2]
    return header


def path_of(command: type[wire.ScriptCall]) -> Path:
    return lua_root() / f"{command.script}.lua"


def test_every_script_has_a_call_and_every_call_a_script() -> None:
    assert {path.stem for path in lua_root().glob("*.lua")} == {
        command.script for command in wire.SCRIPT_CALLS
    }


def test_the_readme_says_of_every_include_where_it_belongs() -> None:
    rows = [line for line in (lua_root() / "README.md").read_text().splitlines() if line.startswith("|")]
    table = rows[rows.index("| about | files |") + 2 :]
    named = [name for row in table for name in re.findall(r"`(\w+…?)`", row)]
    there = [path.stem for path in (lua_root() / "include").glob("*.lua")]

    def covers(name: str, stem: str) -> bool:
        return stem.startswith(name.removesuffix("…")) if name.endswith("…") else stem == name

    assert [stem for stem in there if not any(covers(name, stem) for name in named)] == []
    assert [name for name in named if not any(covers(name, stem) for stem in there)] == []


@BY_SCRIPT
def test_begins_with_one_sentence(command: type[wire.ScriptCall]) -> None:
    sentence = read(path_of(command)).sentence
    assert sentence.endswith(".")
    assert len(sentence) > 20


@BY_SCRIPT
def test_has_one_key(command: type[wire.ScriptCall]) -> None:
    assert read(path_of(command)).keys == ["KEYS[1] meta"]


@BY_SCRIPT
def test_arguments_are_those_of_wire_in_order(command: type[wire.ScriptCall]) -> None:
    header = read(path_of(command))
    assert [number for number, _, _ in header.arguments] == list(range(1, len(header.arguments) + 1))
    assert [name for _, name, _ in header.arguments] == [part.name for part in fields(command)]


@BY_SCRIPT
def test_arguments_name_their_type_or_unit(command: type[wire.ScriptCall]) -> None:
    hints = get_type_hints(command)
    for _, name, unit in read(path_of(command)).arguments:
        if name.endswith("_ms"):
            assert "ms" in unit.split(), f"{name} is in ms, the header says {unit}"
        elif hints[name] is bool:
            assert "1 or 0" in unit or "boolean" in unit, f"{name} is a boolean, the header says {unit}"
        elif hints[name] is wire.Json:
            assert "JSON" in unit, f"{name} is JSON, the header says {unit}"


@BY_SCRIPT
def test_outcomes_are_those_of_wire(command: type[wire.ScriptCall]) -> None:
    outcomes = read(path_of(command)).outcomes
    assert outcomes.keys() | {"SCHEMA"} == command.outcomes
    assert all(len(meaning.strip()) > 3 for meaning in outcomes.values())


@BY_SCRIPT
def test_says_what_makes_it_idempotent(command: type[wire.ScriptCall]) -> None:
    assert len(read(path_of(command)).idempotent) > len("-- Idempotent: ") + 10


@BY_SCRIPT
def test_answers_only_with_outcomes_of_wire(command: type[wire.ScriptCall]) -> None:
    """Every literal `return { 'WORD'` in the script is a declared outcome."""
    text = path_of(command).read_text()
    words = set(re.findall(r"return \{ ?'([A-Z_]+)'", text)) | set(re.findall(r"reply\('([A-Z_]+)'", text))
    assert words <= command.outcomes
