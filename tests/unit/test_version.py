"""Which slicelock this is."""

from importlib import metadata

import pytest

from slicelock.version import version


def test_the_installed_one() -> None:
    assert version() == metadata.version("slicelock")


def test_of_a_checkout_that_is_only_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", none)
    assert version() == "0"
