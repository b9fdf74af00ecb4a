"""The swap bench's arithmetic and words; what it measures needs a GPU."""

from __future__ import annotations

import json

import pytest

from slicelock.bench.swap import GIB, Swap, Way, measure
from slicelock.bench.swap_tensors import shapes
from slicelock.errors import SlicelockError


def size(shape: tuple[int, ...]) -> int:
    return 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)


@pytest.mark.parametrize("nbytes", [2, 10_000, GIB, 24 * GIB])
def test_the_mix_has_exactly_so_many_bytes(nbytes: int) -> None:
    assert sum(map(size, shapes(nbytes))) == nbytes


def figures() -> Swap:
    return Swap(
        nbytes=10**9,
        facts={"device": "a GPU", "torch": "2", "cuda": "13", "tensors": 4},
        floor={"out": [0.1, 0.2], "in": [0.1], "both": [0.2]},
        offload=Way(10**9, [0.3, 0.16, 0.16], [0.2, 0.11, 0.11]),
        pinning={"seconds": 1.0},
        growth={"host": 0, "device": 0},
        in_turn=[0.3],
        fitting=[0.22],
        filling=[0.3],
    )


def test_ratios_are_to_the_floor_of_the_same_run() -> None:
    values = {goal.name: (round(goal.value, 3), goal.reached) for goal in figures().goals()}
    assert values == {
        "offload, of the floor's speed": (0.938, True),
        "reload, of the floor's speed": (0.909, True),
        "first offload, of the floor's speed": (0.5, False),
        "overlapped, both fit, to the duplex floor": (1.1, True),
        "overlapped, filling up, to the duplex floor": (1.5, False),
    }


def test_the_driver_is_compared_by_whole_switches() -> None:
    with_driver = figures()
    with_driver.others["driver"] = Way(10**9, [9.0, 3.0], [9.0, 0.51])
    [driver] = [goal for goal in with_driver.goals() if "driver" in goal.name]
    assert (driver.value, driver.reached) == (pytest.approx(3.51 / 0.27), True)


def test_the_figures_are_json() -> None:
    told = json.loads(json.dumps(figures().as_json()))
    assert told["torch_offload"]["out_gb_s"] == 6.2
    assert told["floor"]["out_s"] == 0.15
    assert told["overlapped_fitting_s"] == {"median": 0.22, "all": [0.22]}


def test_without_a_gpu_there_is_one_clear_line() -> None:
    try:
        import torch
    except ImportError:
        expected = "PyTorch is not installed here"
    else:
        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
        expected = "PyTorch sees no NVIDIA GPU here"
    with pytest.raises(SlicelockError, match=expected):
        measure(GIB, 2, lambda text: None)
