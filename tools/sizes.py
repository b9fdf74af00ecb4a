"""Checks the size of every file and function: no exceptions, since size is where code starts to rot.

Python: files of at most 400 lines, functions of at most 50. Without their docstrings, half of the functions
have at most 8 lines and nine in ten at most 25. Lua: scripts of at most 80 lines, includes of at most 30.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 400
FUNCTION_LINES = 50
MEDIAN_LINES = 8
NINE_IN_TEN_LINES = 25
SCRIPT_LINES = 80
INCLUDE_LINES = 30

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Measured:
    """Something with a length and a place to find it."""

    where: str
    lines: int
    without_docstring: int = 0


def repository_files(root: Path, suffix: str) -> Iterator[Path]:
    """Every file of the repository with this suffix: committed, or new and not ignored."""
    command = [
        "git",
        "-C",
        str(root),
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
        f"*{suffix}",
    ]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return (path for name in listed.split("\0") if name and (path := root / name).is_file())


def length(path: Path) -> int:
    """A file's lines."""
    return len(path.read_text(encoding="utf-8").splitlines())


def measure(node: Function, where: str) -> Measured:
    """A function's lines from `def` to its end."""
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    has_docstring = len(node.body) > 1 and ast.get_docstring(node, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if has_docstring else 0
    return Measured(f"{where}:{node.lineno} {node.name}", whole, whole - docstring)


def functions(path: Path, root: Path) -> Iterator[Measured]:
    """Every function of a Python file, also nested ones."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, Function):
            yield measure(node, str(path.relative_to(root)))


def too_long(items: list[Measured], limit: int, what: str) -> list[str]:
    """One complaint for each item over the limit."""
    return [f"{m.where}: {m.lines} lines, {what} may have {limit}" for m in items if m.lines > limit]


def spread(items: list[Measured]) -> list[str]:
    """Complaints about the distribution of the functions' lengths."""
    lengths = sorted(m.without_docstring for m in items)
    if not lengths:
        return []
    complaints: list[str] = []
    for share, limit in ((0.5, MEDIAN_LINES), (0.9, NINE_IN_TEN_LINES)):
        value = lengths[min(len(lengths) - 1, int(len(lengths) * share))]
        if value > limit:
            complaints.append(f"{share:.0%} of the functions should have at most {limit} lines, not {value}")
    return complaints


def complaints(root: Path = ROOT) -> list[str]:
    """Everything that is too long under `root`."""
    python = list(repository_files(root, ".py"))
    lua = list(repository_files(root, ".lua"))
    sized = {path: Measured(str(path.relative_to(root)), length(path)) for path in (*python, *lua)}
    includes = [path for path in lua if path.parent.name == "include"]
    measured = [function for path in python for function in functions(path, root)]
    # Tests read like lists: their functions have the limit, but would only blur the product's distribution.
    product = [m for m in measured if not m.where.startswith("tests/")]
    return [
        *too_long([sized[path] for path in python], FILE_LINES, "a Python file"),
        *too_long([sized[path] for path in lua if path not in includes], SCRIPT_LINES, "a script"),
        *too_long([sized[path] for path in includes], INCLUDE_LINES, "an include"),
        *too_long(measured, FUNCTION_LINES, "a function"),
        *spread(product),
    ]


def main() -> int:
    """Print every complaint; 1 if there is one."""
    found = complaints()
    for line in found:
        print(line)
    if not found:
        print("sizes: every file and function is within its limit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
