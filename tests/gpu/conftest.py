"""Tests on a real NVIDIA GPU. Without one each is skipped, counted and named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.errors import BackendUnavailable
from slicelock.hooks import TorchOffload
from tests.gpu.own_gpu import WORKER, own_gpu, users
from tests.gpu.stage import Stage

FIGURES = os.environ.get("SLICELOCK_FIGURES")  # read now: tests run without the user's own settings


@cache
def missing() -> str:
    """What keeps these tests from running; empty when nothing does."""
    try:
        torch = import_module("torch")
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return "there is no NVIDIA GPU"
    try:
        own_gpu()
    except IndexError:
        return f"there is no NVIDIA GPU for this worker ({WORKER}); run no more workers than GPUs"
    return ""


def pytest_configure() -> None:
    """A worker sees its own GPU alone, and so does what its tests start."""
    if WORKER:
        with suppress(BackendUnavailable, IndexError):
            os.environ["CUDA_VISIBLE_DEVICES"] = own_gpu()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that have PyTorch in this very process come last: it stays on the GPU, beside whom the agent
    restores nobody.
    """
    items.sort(key=lambda item: "torch" in getattr(item, "fixturenames", ()))
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.gpu)
            if reason := missing():
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Takes what was measured: printed, and kept as JSON lines in the file that SLICELOCK_FIGURES names."""

    def take(**facts: Any) -> None:
        line = json.dumps({"test": request.node.name, **facts})
        print(line)
        if FIGURES:
            with Path(FIGURES).open("a") as file:
                file.write(f"{line}\n")

    return take


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    if os.getpid() in users():
        pytest.skip("this process uses the GPU itself; run this file in a process of its own")
    with EmbeddedServer() as server:
        made = Stage(tmp_path, server.url)
        yield made
        made.close()


@pytest.fixture
def torch() -> Iterator[Any]:
    """PyTorch, with an empty first GPU."""
    module = import_module("torch")
    module.cuda.set_device(0)
    module.cuda.empty_cache()
    yield module
    module.cuda.synchronize()
    module.cuda.empty_cache()


@pytest.fixture
def offload(torch: Any) -> Iterator[Callable[..., TorchOffload]]:
    """Makes hooks that are closed afterwards."""
    made: list[TorchOffload] = []

    def make(*things: Any, **options: Any) -> TorchOffload:
        made.append(TorchOffload(*things, **options))
        return made[-1]

    yield make
    for hook in made:
        hook.close()
