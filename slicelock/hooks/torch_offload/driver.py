"""The few calls of the NVIDIA driver that torch does not offer: pinning what is not torch's, plain copies,
and whether there is memory at an address.

A copy through torch costs several microseconds of Python for each tensor; these cost about one.
"""

from __future__ import annotations

import ctypes

from slicelock.errors import ConfigurationError, SlicelockError

PORTABLE = 1  # pinned for every context of the process
RELAXED = 2
SUCCESS, INVALID_VALUE = 0, 1
MAPPED = 13  # CU_POINTER_ATTRIBUTE_MAPPED


class DriverError(SlicelockError):
    """A call of the driver failed."""


class Driver:
    """`libcuda`. ConfigurationError when this machine has none."""

    def __init__(self) -> None:
        try:
            lib = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise ConfigurationError(
                "The NVIDIA driver's library libcuda.so.1 is not on this machine.",
                advice="TorchOffload moves tensors of NVIDIA GPUs; for others register a hook of your own.",
            ) from None
        lib.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
        lib.cuMemHostUnregister.argtypes = [ctypes.c_void_p]
        lib.cuMemcpyAsync.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
        lib.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
        lib.cuThreadExchangeStreamCaptureMode.argtypes = [ctypes.POINTER(ctypes.c_int)]
        lib.cuGetErrorName.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
        self._lib = lib
        self._copy = lib.cuMemcpyAsync

    def pin(self, address: int, nbytes: int) -> None:
        """Pin memory of this process. A stream that another thread captures meanwhile is not disturbed."""
        mode = ctypes.c_int(RELAXED)
        self._lib.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            self._check(self._lib.cuMemHostRegister_v2(address, nbytes, PORTABLE), "pinning host memory")
        finally:
            self._lib.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))

    def unpin(self, address: int) -> None:
        """Undo `pin`."""
        self._check(self._lib.cuMemHostUnregister(address), "unpinning host memory")

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy between two addresses; which of them are the device's, the driver knows."""
        if code := self._copy(target, source, nbytes, stream):
            self._check(code, f"copying {nbytes} bytes")

    def is_mapped(self, address: int) -> bool:
        """Whether there is memory behind an address that was reserved for a device's."""
        mapped = ctypes.c_uint64(0)
        code = self._lib.cuPointerGetAttribute(ctypes.byref(mapped), MAPPED, address)
        if code == INVALID_VALUE:  # how drivers answer for a reserved range without any memory
            return False
        self._check(code, "asking about an address")
        return bool(mapped.value)

    def _check(self, code: int, what: str) -> None:
        if code != SUCCESS:
            name = ctypes.c_char_p()
            self._lib.cuGetErrorName(code, ctypes.byref(name))
            raise DriverError(f"{what} failed: {(name.value or b'').decode() or 'error'} ({code}).")
