"""The project's own checks find what they are for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import lint_lua, sizes


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def write(root: Path, name: str, lines: int, text: str = "-- line") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n" * lines)


def function(lines: int, name: str = "f") -> str:
    return f"def {name}():\n" + "    pass\n" * (lines - 1)


def test_everything_within_its_limit_is_no_complaint(repository: Path) -> None:
    write(repository, "a.py", 400, "x = 1")
    write(repository, "lua/a.lua", 80)
    write(repository, "lua/include/a.lua", 30)
    (repository / "b.py").write_text(function(8))
    assert sizes.complaints(repository) == []


@pytest.mark.parametrize(
    ("name", "lines"), [("a.py", 401), ("lua/a.lua", 81), ("lua/include/a.lua", 31), ("tests/a.py", 401)]
)
def test_files_that_are_too_long(repository: Path, name: str, lines: int) -> None:
    write(repository, name, lines, "" if name.endswith("py") else "--")
    (complaint,) = sizes.complaints(repository)
    assert name in complaint and str(lines) in complaint


def test_functions_that_are_too_long(repository: Path) -> None:
    small = "".join(function(2, f"small{n}") for n in range(20))
    (repository / "a.py").write_text(small + function(51, "big"))
    (complaint,) = sizes.complaints(repository)
    assert "a.py:41 big: 51 lines" in complaint


def test_a_docstring_counts_for_the_limit_but_not_for_the_spread(repository: Path) -> None:
    documented = (
        'def f():\n    """One.\n\n    Two.\n    Three.\n    Four.\n    Five.\n    """\n    return 1\n'
    )
    (repository / "a.py").write_text(documented)
    assert sizes.complaints(repository) == []


def test_many_long_functions_are_a_complaint(repository: Path) -> None:
    (repository / "a.py").write_text("".join(function(12, f"f{n}") for n in range(5)))
    (complaint,) = sizes.complaints(repository)
    assert complaint == "50% of the functions should have at most 8 lines, not 12"


def test_ignored_files_do_not_count(repository: Path) -> None:
    (repository / ".gitignore").write_text("/build/\n")
    write(repository, "build/a.py", 500, "")
    assert sizes.complaints(repository) == []


def test_missing_tools_are_an_error_only_in_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lint_lua.shutil, "which", lambda tool: None)
    monkeypatch.delenv("CI", raising=False)
    assert lint_lua.main() == 0
    assert "apt-get install lua-check" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert lint_lua.main() == 1


def test_an_include_that_nothing_uses_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "include/a.lua", 1, "local function lonely() end")
    monkeypatch.setattr(lint_lua, "lua_root", lambda: tmp_path)
    monkeypatch.setattr(lint_lua, "ROOT", tmp_path)
    assert lint_lua.unused_functions() == ["include/a.lua: nothing uses lonely()"]


def test_a_script_that_does_not_compile_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if lint_lua.shutil.which("luac5.1") is None:
        pytest.skip("luac5.1 is missing")
    write(tmp_path, "bad.lua", 1, "local local")
    assert lint_lua.run("luac5.1", "-p", str(tmp_path / "bad.lua"))
