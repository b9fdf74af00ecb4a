"""A slice's own settings, from the command line into the pool."""

from __future__ import annotations

import json
import re

import pytest
import typer

from slicelock.cli import slice_settings
from tests.cli.conftest import Call


def test_settings_are_read() -> None:
    given = ["fallback=hooks, kill", "min_free=40GiB", "zero_residue=yes"]
    assert slice_settings.read(given) == {
        "fallback": "hooks,kill",
        "min_free": 40 << 30,
        "zero_residue": True,
    }


@pytest.mark.parametrize(
    "option", ["min_free", "colour=red", "min_free=much", "fallback=luck", "zero_residue=2"]
)
def test_settings_that_make_no_sense_are_named(option: str) -> None:
    with pytest.raises(typer.BadParameter, match=option.partition("=")[0]) as caught:
        slice_settings.read([option])
    assert not re.search(r"Input should|Value error|unable to|could not", str(caught.value))


@pytest.mark.usefixtures("slicelock_env")
def test_they_reach_the_pool(call: Call) -> None:
    assert call("slice", "declare", "s", "--node", "n1=0", "--set", "min_free=1GiB").code == 0
    [one] = json.loads(call("status", "--json").out)["slices"]
    assert one["settings"] == {"min_free": 1 << 30}
