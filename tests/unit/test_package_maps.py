"""A package's docstring says where things are: it names every module that there is."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

import pytest

MAPPED = (
    "slicelock.client",
    "slicelock.companion",
    "slicelock.hooks.torch_offload",
    "slicelock.protocol",
    "slicelock.servers",
    "slicelock.store",
    "slicelock_agent",
    "slicelock_agent.backends.cuda",
)


@pytest.mark.parametrize("name", MAPPED)
def test_a_package_names_its_modules(name: str) -> None:
    package = import_module(name)
    words = set(re.findall(r"`(\w+)(?:\.\w+)?`", package.__doc__ or ""))
    there = {module.name for module in pkgutil.iter_modules(package.__path__)} - {"__main__"}
    assert there - words == set()
