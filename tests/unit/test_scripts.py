"""Finding, including and hashing Lua scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from slicelock import scripts, wire
from slicelock.errors import StoreUnavailable
from tests.support.shortage import descriptors_left


@pytest.fixture
def lua(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write files of a Lua folder that the loader uses."""
    (tmp_path / "include").mkdir()
    monkeypatch.setattr(scripts, "lua_root", lambda: tmp_path)
    return lambda name, text: (tmp_path / f"{name}.lua").write_text(text) and None


def include(*names: str) -> str:
    return "".join(f'--- @include "{name}"\n' for name in names)


def test_each_include_once_dependencies_first(lua: Callable[[str, str], None]) -> None:
    lua("main", include("a", "b") + "main")
    lua("include/a", include("b") + "a")
    lua("include/b", "b")
    assert scripts.render("main").split() == ["b", "a", "main"]


def test_a_cycle_is_an_error_that_shows_the_way(lua: Callable[[str, str], None]) -> None:
    lua("main", include("a"))
    lua("include/a", include("b"))
    lua("include/b", include("a"))
    with pytest.raises(scripts.IncludeError, match=r"main\.lua -> a -> b -> a"):
        scripts.render("main")


def test_a_missing_include_is_an_error_that_names_the_file(lua: Callable[[str, str], None]) -> None:
    lua("main", include("nowhere"))
    with pytest.raises(scripts.IncludeError, match=r"main\.lua includes 'nowhere'.*include/nowhere\.lua"):
        scripts.render("main")


def test_an_overlay_wins_over_an_include(lua: Callable[[str, str], None], tmp_path: Path) -> None:
    lua("main", include("a"))
    lua("include/a", "real")
    lua("a", "test")
    assert scripts.render("main").split() == ["real"]
    assert scripts.render("main", tmp_path).split() == ["test"]


def test_what_is_loaded_later_is_of_the_same_version(lua: Callable[[str, str], None], tmp_path: Path) -> None:
    lua("first", "first")
    lua("second", include("a"))
    lua("include/a", "old")
    scripts.render("first")
    lua("include/a", "new")
    (tmp_path / "second.lua").unlink()
    assert scripts.render("second").split() == ["old"]


def test_the_hash_is_that_of_the_text() -> None:
    source = scripts.load("status")
    assert source.sha == hashlib.sha1(source.text.encode()).hexdigest()


@pytest.mark.parametrize("command", wire.SCRIPT_CALLS, ids=lambda command: command.script)
def test_every_script_renders_completely(command: type[wire.ScriptCall]) -> None:
    assert "@include" not in scripts.load(command.script).text


def test_without_a_descriptor_none_is_taken_for_missing(lua: Callable[[str, str], None]) -> None:
    lua("main", "main")
    with descriptors_left(0), pytest.raises(StoreUnavailable, match=r"cannot be read.*ulimit"):
        scripts.render("main")
    assert scripts.render("main") == "main\n"
