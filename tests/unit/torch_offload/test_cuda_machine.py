"""What is said when TorchOffload is made where it can do little; no torch is needed for that."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.hooks.torch_offload.device import CudaMachine
from slicelock.hooks.torch_offload.guard import warn_of_no_guard


def torch_with(cuda: str | None, count: int, **functions: Any) -> Any:
    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(device_count=lambda: count),
        _C=SimpleNamespace(**functions),
    )


GUARDED = {
    "_set_storage_data_ptr_access_error_msg": print,
    "_clear_storage_data_ptr_access_error_msg": print,
}


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (torch_with(None, 0), "this torch is built without CUDA. Install a CUDA build of torch, or register"),
        (
            torch_with("13.0", 0, **GUARDED),
            "torch sees no GPU. Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        ),
    ],
)
def test_without_a_gpu_there_is_one_warning(torch: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "slicelock"):
        CudaMachine(torch)
    (record,) = caplog.records
    assert f"nothing to move: {words}" in record.getMessage()


def test_without_a_guard_there_is_one_warning_and_no_second(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_no_guard.cache_clear()
    with caplog.at_level(logging.WARNING, "slicelock"):
        CudaMachine(torch_with("13.0", 1, **GUARDED))
        assert not caplog.records
        CudaMachine(torch_with("13.0", 1))
        CudaMachine(torch_with("13.0", 1))
    (record,) = caplog.records
    assert "use offloaded tensors inside turns only" in record.getMessage()
