"""TorchOffload on a device made of host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slicelock.hooks import TorchOffload
from tests.support.torch_machine import HostMachine


@pytest.fixture
def machine() -> HostMachine:
    return HostMachine()


@pytest.fixture
def hooks() -> Iterator[list[TorchOffload]]:
    made: list[TorchOffload] = []
    yield made
    for hook in made:
        hook.close()


@pytest.fixture
def offload(machine: HostMachine, hooks: list[TorchOffload]) -> Any:
    def make(*things: Any, **options: Any) -> TorchOffload:
        hooks.append(TorchOffload(*things, machine=machine, **options))
        return hooks[-1]

    return make
