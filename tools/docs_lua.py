"""The scripts, from their headers; keys and channels, from the data model beside them; the rules' numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from docs_markdown import code, docstring, sections, table

from slicelock.codec import ScriptCall
from slicelock.scripts import lua_root
from slicelock.wire import SCRIPT_CALLS

ARGUMENT = re.compile(r"^-- ARGV\[\d+\] (\w+) \((.+)\)$")
OUTCOME = re.compile(r"^-- ([A-Z_]{2,}) (.+)$")
LIMIT = re.compile(r"^local ([A-Z_]+) = (\d+) +-- (.+)$")
MODEL = Path(lua_root(), "README.md")


@dataclass(slots=True)
class Header:
    """What a script's header says."""

    does: str
    arguments: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    outcomes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    idempotent: str = ""


def header(name: str) -> Header:
    """Read the header of one script; it ends with the line that says what makes it idempotent."""
    lines = (lua_root() / f"{name}.lua").read_text(encoding="utf-8").splitlines()
    read = Header(lines[0].removeprefix("-- "))
    for line in lines[1:]:
        if line.startswith("-- Idempotent: "):
            read.idempotent = line.removeprefix("-- Idempotent: ")
            break
        if found := ARGUMENT.match(line):
            read.arguments.append((found[1], found[2]))
        elif found := OUTCOME.match(line):
            read.outcomes.append((found[1], found[2]))
    return read


def script(command: type[ScriptCall]) -> str:
    """One script's section."""
    read = header(command.script)
    arguments = ((str(number), code(name), form) for number, (name, form) in enumerate(read.arguments, 1))
    return sections(
        [
            f"## {command.script}",
            read.does,
            docstring(command).split("\n\n", 1)[-1] if "`report` is JSON" in docstring(command) else "",
            table(("ARGV", "argument", "form"), arguments),
            table(
                ("outcome", "meaning (after a colon: what comes with it)"),
                ((code(word), text) for word, text in read.outcomes),
            ),
            f"When it is repeated: {read.idempotent}",
            f"What comes with the answers: {' '.join(docstring(command.reply).split())}"
            if docstring(command.reply)
            else "",
        ]
    )


def scripts() -> str:
    """Every script, in the order of `wire.py`."""
    return sections(script(command) for command in SCRIPT_CALLS)


def model_table(head: str) -> str:
    """The table of the data model whose first column has this name."""
    found = re.search(
        rf"^\| {head} \|.*?(?=\n\n|\Z)", MODEL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise LookupError(f"{MODEL} has no table that begins with the column {head}")
    return found[0].strip()


def keys() -> str:
    """Every key."""
    return model_table("key")


def channels() -> str:
    """Every channel."""
    return model_table("channel")


def limits() -> str:
    """The numbers that the rules share."""
    lines = (lua_root() / "include" / "limits.lua").read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := LIMIT.match(line))]
    return table(("number", "value", "meaning"), ((code(one[1]), code(one[2]), one[3]) for one in found))
