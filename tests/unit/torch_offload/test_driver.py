"""The driver's calls against a stand-in for its library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.hooks.torch_offload import driver
from slicelock.hooks.torch_offload.driver import MAPPED, Driver, DriverError


def driver_that(answers: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Driver:
    class Library:
        """Calls are any objects; this one answers."""

        def __getattr__(self, name: str) -> Any:
            return answers if name == "cuPointerGetAttribute" else SimpleNamespace()

    def name_of(code: int, name: Any) -> None:
        name._obj.value = b"CUDA_ERROR_UNKNOWN"

    library = Library()
    library.cuGetErrorName = name_of  # type: ignore[attr-defined]
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda _: library)
    return Driver()


@pytest.mark.parametrize(("code", "value", "mapped"), [(0, 1, True), (0, 0, False), (1, 0, False)])
def test_whether_there_is_memory_at_an_address(
    monkeypatch: pytest.MonkeyPatch, code: int, value: int, mapped: bool
) -> None:
    def answer(found: Any, attribute: int, address: int) -> int:
        assert (attribute, address) == (MAPPED, 4096)
        ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[0] = value
        return code

    assert driver_that(answer, monkeypatch).is_mapped(4096) is mapped


def test_a_driver_that_cannot_tell_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverError, match=r"asking about an address failed: CUDA_ERROR_UNKNOWN \(999\)"):
        driver_that(lambda *_: 999, monkeypatch).is_mapped(4096)
