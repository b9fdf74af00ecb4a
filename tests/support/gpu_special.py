"""A CUDA process with one thing that the driver's checkpoint may not bear: it works once for each line of
input, and tells if that came out right.

    python -m tests.support.gpu_special managed | exported | profiled

A few MiB of managed memory; mapped memory with an exported descriptor; PyTorch's profiler, which is on.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import torch
from cuda.bindings import driver as cu

BYTES = 4 << 20
VALUE = 7

Work = Callable[[], torch.Tensor]


def called(answer: tuple[Any, ...]) -> Any:
    """What a call of the driver gave; RuntimeError when it failed."""
    code, *rest = answer
    if int(code):
        raise RuntimeError(f"the driver answered {code}")
    return rest[0] if rest else None


def copied(address: int) -> torch.Tensor:
    """What is in device memory that PyTorch does not know."""
    torch.cuda.synchronize()
    into = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    called(cu.cuMemcpyDtoD(into.data_ptr(), address, BYTES))
    return into.cpu()


def managed() -> Work:
    flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    address = int(called(cu.cuMemAllocManaged(BYTES, flags)))
    ctypes.memset(address, VALUE, BYTES)
    return lambda: copied(address)


def exported() -> Work:
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties, access = cu.CUmemAllocationProp(), cu.CUmemAccessDesc()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.requestedHandleTypes = kind
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location = properties.location
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    handle = called(cu.cuMemCreate(BYTES, properties, 0))
    address = int(called(cu.cuMemAddressReserve(BYTES, 0, 0, 0)))
    called(cu.cuMemMap(address, BYTES, 0, handle, 0))
    called(cu.cuMemSetAccess(address, BYTES, [access], 1))
    called(cu.cuMemsetD8(address, VALUE, BYTES))
    called(cu.cuMemExportToShareableHandle(handle, kind, 0))
    return lambda: copied(address)


def profiled() -> Work:
    kept = torch.full((BYTES,), VALUE, dtype=torch.uint8, device="cuda")
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    profiler.start()

    def work() -> torch.Tensor:
        with torch.profiler.record_function("work"):
            return (kept + 0).cpu()

    return work


def main(kind: str) -> None:
    torch.zeros(1, device="cuda")
    work = {"managed": managed, "exported": exported, "profiled": profiled}[kind]()
    expected = torch.full((BYTES,), VALUE, dtype=torch.uint8)
    assert torch.equal(work(), expected)
    print("ready", flush=True)
    for _ in sys.stdin:
        print("right" if torch.equal(work(), expected) else "wrong", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
