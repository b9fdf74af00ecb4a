"""Finds the Lua scripts, puts their shared parts in, and names them by their hash.

A line `--- @include "name"` is replaced by `include/name.lua`, once per script, in order. Scripts are
looked for in the installed package first, then in the checkout.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


def render(name: str, overlay: Path | None = None) -> str:
    """The text of one script with its includes; a file in `overlay` wins over the include of the same name
    (for tests)."""
    root = lua_root()
    done: set[str] = set()

    def part(include: str, via: tuple[str, ...]) -> Iterable[str]:
        if include in via:
            raise IncludeError(f"include cycle: {' -> '.join((*via, include))}")
        if include in done:
            return
        done.add(include)
        places = [folder / f"{include}.lua" for folder in (overlay, root / "include") if folder]
        path = next((p for p in places if p.is_file()), None)
        if path is None:
            raise IncludeError(f"{' -> '.join(via)} includes {include!r}: there is no {places[-1]}")
        yield from expand(path, (*via, include))

    def expand(path: Path, via: tuple[str, ...]) -> Iterable[str]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := INCLUDE.match(line):
                yield from part(match[1], via)
            else:
                yield line

    return "\n".join(expand(root / f"{name}.lua", (f"{name}.lua",))) + "\n"


@cache
def load(name: str, overlay: Path | None = None) -> Source:
    """The script `name`, rendered and hashed."""
    text = render(name, overlay)
    return Source(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
