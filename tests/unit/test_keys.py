"""Names: what is allowed, and that Lua and Python build the same keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from lupa import lua51  # type: ignore[import-untyped]

from slicelock.errors import ConfigurationError
from slicelock.keys import Keys, check_name, request_id
from slicelock.scripts import lua_root

KEYS = Keys("my-pool")
PLAIN = ("meta", "slices", "nodes", "gathering", "deadlines", "served", "events")
NAMED = ("slice", "ready", "queue", "node", "run", "procs", "process", "gone", "request")


@pytest.mark.parametrize("name", ["a", "0", "a.b_c-d", "A" * 64])
def test_good_names(name: str) -> None:
    assert check_name("slice", name) == name


@pytest.mark.parametrize("name", ["", ".a", "-a", "_a", "a b", "a/b", "a|b", "{a}", "é", "a\n", "A" * 65])
def test_bad_names_are_shown(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_name("slice", name)
    assert repr(name) in str(caught.value)
    assert "slice name" in str(caught.value)


def test_a_pool_has_one_hash_slot() -> None:
    every = [getattr(KEYS, name) for name in PLAIN] + [getattr(KEYS, name)("x") for name in NAMED]
    assert {re.search(r"\{(.*?)\}", key)[1] for key in every} == {"my-pool"}  # type: ignore[index]
    assert len(set(every)) == len(every)


def test_a_requests_id() -> None:
    assert request_id("run", "main", 7) == "run/main/7"


def lua_key() -> object:
    """The function `key` of the Lua include, for this pool."""
    runtime = lua51.LuaRuntime()
    runtime.globals().KEYS = runtime.table(KEYS.meta)
    return runtime.execute((lua_root() / "include/keys.lua").read_text() + "\nreturn key")


def test_lua_builds_the_same_keys() -> None:
    key = lua_key()
    for name in PLAIN:
        assert key(name) == getattr(KEYS, name)  # type: ignore[operator]
    for name in NAMED:
        assert key(name, "x/main/1") == getattr(KEYS, name)("x/main/1")  # type: ignore[operator]


def lua_lines() -> Iterator[str]:
    for path in sorted(lua_root().rglob("*.lua")):
        yield from path.read_text().splitlines()


def test_lua_uses_no_other_keys_and_channels() -> None:
    kinds = {
        kind for line in lua_lines() for kind in re.findall(r"\b(?:key|record|write|erase)\('(\w+)'", line)
    }
    assert kinds <= {*PLAIN, *NAMED}
    channels = {kind for line in lua_lines() for kind in re.findall(r"\bhint\('(\w+):'", line)}
    assert {f"{KEYS.prefix}ch:{kind}:x" for kind in channels} <= {
        KEYS.node_channel("x"),
        KEYS.run_channel("x"),
    }


def test_the_page_on_the_data_model_lists_every_key() -> None:
    rows = re.findall(r"^\| `([\w:<>/]+)` \| (\w+) \|", (lua_root() / "README.md").read_text(), re.MULTILINE)
    listed = {name.split(":")[0] for name, _ in rows if not name.startswith("ch:")}
    assert listed == {*PLAIN, *NAMED}
