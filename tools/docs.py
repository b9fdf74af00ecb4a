"""Writes the generated parts of the docs from the code, so that they cannot rot; `--check` only compares.

A generated part stands in a Markdown file between two comments:

    <!-- generated: settings Settings -->
    ...
    <!-- end of generated -->

The words after the colon name a function of `GENERATORS` and its arguments. Pictures are whole files.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import docs_api
import docs_benchmarks
import docs_commands
import docs_errors
import docs_lua
import docs_metrics
import docs_pictures
import docs_settings

ROOT = Path(__file__).resolve().parent.parent
GENERATORS: dict[str, Callable[..., str]] = {
    "agent-help": docs_commands.agent_help,
    "api": docs_api.api,
    "benchmarks": docs_benchmarks.of_part,
    "channels": docs_lua.channels,
    "commands": docs_commands.commands,
    "error-tree": docs_errors.tree,
    "errors": docs_errors.of_all,
    "exit-codes": docs_errors.exit_codes,
    "keys": docs_lua.keys,
    "limits": docs_lua.limits,
    "metrics": docs_metrics.of_group,
    "scripts": docs_lua.scripts,
    "settings": docs_settings.of_class,
}
BLOCK = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def pages() -> list[Path]:
    """Every Markdown file that may have generated parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """A page with its generated parts as they should be; KeyError for a generator that does not exist."""

    def fill(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{GENERATORS[name](*arguments).strip()}\n\n{match[3]}"

    return BLOCK.sub(fill, text)


def wanted() -> dict[Path, str]:
    """What every page and picture should hold."""
    files = {path: filled(path.read_text(encoding="utf-8")) for path in pages()}
    return files | {ROOT / "docs" / name: text for name, text in docs_pictures.pictures().items()}


def present(path: Path) -> str:
    """What a file holds; nothing if there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def complaint(path: Path, text: str) -> list[str]:
    """The first lines in which a file differs from what it should hold."""
    name = str(path.relative_to(ROOT))
    lines = difflib.unified_diff(
        present(path).splitlines(), text.splitlines(), name, "generated", n=0, lineterm=""
    )
    return list(lines)[:20]


def main() -> int:
    """Write what differs; with `--check`, only say so and end with 1."""
    outdated = {path: text for path, text in wanted().items() if present(path) != text}
    if "--check" in sys.argv[1:]:
        for path, text in outdated.items():
            print("\n".join(complaint(path, text)))
        print("docs: run `python tools/docs.py`" if outdated else "docs: every generated part is current")
        return 1 if outdated else 0
    for path, text in outdated.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"docs: wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
