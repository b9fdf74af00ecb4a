"""Two PyTorch jobs on one real GPU: what they learn does not depend on sharing."""

from __future__ import annotations

import json
import sys

import pytest

from slicelock.bench.duty import measure
from tests.gpu.own_gpu import own_gpu

SMALL = ("--width=256", "--layers=2", "--batch=128", "--rate=0.001")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["hooks", "cuda"])
def test_losses_are_those_of_the_runs_alone(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules["slicelock.bench.duty"].BUSY_S, way, 0.2)
    figures = measure(print, 4, way, own_gpu(), SMALL)
    print(json.dumps(figures.as_json(), indent=1))
    assert figures.work.reproducible
    assert figures.differing_steps == {}
    assert figures.identical
