"""Checks the Lua scripts as Redis gets them: rendered, compiled with `luac5.1 -p`, linted with `luacheck`.

Also finds functions of `lua/include/` that nothing uses, which a linter of single scripts cannot see. A
missing tool is a notice on a developer's machine and an error where `CI` is set.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(ROOT := Path(__file__).resolve().parent.parent))

from slicelock.scripts import IncludeError, lua_root, render

# Rules are called by name; functions of other tables may be looked up by a word of a message.
FUNCTION = re.compile(r"^(?:local function |function rules\.)(\w+)", re.MULTILINE)
TOOLS = {"luac5.1": "lua5.1", "luacheck": "lua-check"}


def rendered(folder: Path) -> list[Path]:
    """Every script with its includes, written to `folder`; IncludeError if one cannot be rendered."""
    paths: list[Path] = []
    for script in sorted(lua_root().glob("*.lua")):
        path = folder / script.name
        path.write_text(render(script.stem), encoding="utf-8")
        paths.append(path)
    return paths


def run(*command: str) -> list[str]:
    """The lines a failing tool printed; none if it was content."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return [] if done.returncode == 0 else [*(done.stdout + done.stderr).strip().splitlines()]


def unused_functions() -> list[str]:
    """Functions of an include that no other line mentions."""
    everything = "\n".join(path.read_text(encoding="utf-8") for path in lua_root().rglob("*.lua"))
    return [
        f"{path.relative_to(ROOT)}: nothing uses {name}()"
        for path in sorted(lua_root().glob("include/*.lua"))
        for name in FUNCTION.findall(path.read_text(encoding="utf-8"))
        if len(re.findall(rf"\b{name}\b", everything)) < 2
    ]


def lint(missing: list[str]) -> list[str]:
    """Every complaint of the tools that are there."""
    with TemporaryDirectory(prefix="slicelock-lua-") as folder:
        try:
            paths = rendered(Path(folder))
        except IncludeError as error:
            return [str(error)]
        complaints = unused_functions()
        for path in paths if "luac5.1" not in missing else ():
            complaints += run("luac5.1", "-p", str(path))
        if "luacheck" not in missing and paths:
            complaints += run("luacheck", "--quiet", "--codes", "--no-color", *map(str, paths))
        return [line.replace(f"{folder}/", "rendered ") for line in complaints]


def main() -> int:
    """Print every complaint; 1 if there is one."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    complaints = lint(missing)
    for line in complaints:
        print(line)
    for tool in missing:
        print(f"lint_lua: {tool} is missing, so not all was checked: apt-get install {TOOLS[tool]}")
    if not complaints and not missing:
        print("lint_lua: every script compiles and is free of warnings")
    return 1 if complaints or (missing and os.environ.get("CI")) else 0


if __name__ == "__main__":
    sys.exit(main())
