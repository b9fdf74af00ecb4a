"""Finds the Lua scripts, puts their shared parts in, and names them by their hash.

A line `--- @include "name"` is replaced by `include/name.lua`, once per script, in order. Scripts are
looked for in the installed package first, then in the checkout.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from slicelock.shortage import explained

INCLUDE = re.compile(r'^--- @include "([a-z_]+)"$')


class IncludeError(Exception):
    """A Lua script includes a file that does not exist, or itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """A script ready for Redis."""

    name: str
    text: str
    sha: str


def lua_root() -> Path:
    """The folder with the scripts."""
    here = Path(__file__).resolve().parent
    return here / "_lua" if (here / "_lua").is_dir() else here.parent / "lua"


@cache
def _texts(root: Path) -> Mapping[str, str]:
    """Every file of the folder by its name, read at once: a job runs for days, and by its first cancel
    another version may have been installed, or there may be no descriptor left to open a file with."""
    with explained(f"slicelock's scripts in {root} cannot be read", "Install slicelock anew."):
        return {
            path.relative_to(root).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
            for folder in (root, root / "include")
            for path in folder.iterdir()  # a glob may find nothing where it cannot look
            if path.suffix == ".lua"
        }


def render(name: str, overlay: Path | None = None) -> str:
    """The text of one script with its includes; a file in `overlay` wins over the include of the same name
    (for tests)."""
    root = lua_root()
    texts = _texts(root)
    done: set[str] = set()

    def part(include: str, via: tuple[str, ...]) -> Iterable[str]:
        if include in via:
            raise IncludeError(f"include cycle: {' -> '.join((*via, include))}")
        if include in done:
            return
        done.add(include)
        yield from expand(text_of(include, via), (*via, include))

    def text_of(include: str, via: tuple[str, ...]) -> str:
        if overlay and (path := overlay / f"{include}.lua").is_file():
            return path.read_text(encoding="utf-8")
        if (text := texts.get(f"include/{include}")) is None:
            missing = root / "include" / f"{include}.lua"
            raise IncludeError(f"{' -> '.join(via)} includes {include!r}: there is no {missing}")
        return text

    def expand(text: str, via: tuple[str, ...]) -> Iterable[str]:
        for line in text.splitlines():
            if match := INCLUDE.match(line):
                yield from part(match[1], via)
            else:
                yield line

    return "\n".join(expand(texts[name], (f"{name}.lua",))) + "\n"


@cache
def load(name: str, overlay: Path | None = None) -> Source:
    """The script `name`, rendered and hashed."""
    text = render(name, overlay)
    return Source(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
