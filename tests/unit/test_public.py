"""The public surface: few names, a quick import."""

from __future__ import annotations

import subprocess
import sys

import slicelock

HEAVY = ("torch", "numpy", "rich", "typer", "pynvml", "redis", "pydantic")


def test_has_at_most_twenty_names() -> None:
    assert len(slicelock.__all__) <= 20
    assert sorted(slicelock.__all__) == slicelock.__all__


def test_every_name_is_there() -> None:
    for name in slicelock.__all__:
        assert getattr(slicelock, name) is not None
        assert name in dir(slicelock)


def imported(code: str) -> set[str]:
    """Top-level modules after running `code` in a new interpreter."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_the_import_brings_nothing_heavy() -> None:
    assert imported("import slicelock").isdisjoint(HEAVY)


def test_a_slice_brings_neither_frameworks_nor_the_command_line() -> None:
    assert imported("import slicelock; slicelock.Slice('a')").isdisjoint(("torch", "numpy", "rich", "typer"))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(slicelock, "nonsense")
