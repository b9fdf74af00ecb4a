"""Makes torch raise an error that says what happened when something touches an offloaded tensor.

Without it, a kernel would read address 0: a CUDA fault, after which the process can only end. torch keeps a
flag in each storage that turns every access to its data into an error with a text of our choice. It was made
for CUDA graphs and is part of CUDA builds only. From 2.13 on torch can clear it too; before, the two bytes
that setting it changes are found on a scratch storage and put back afterwards, and only if that provably
works there.

What stays torch's own words: making a view of an offloaded tensor (`t[0]`, `F.linear`) fails before any
access, with "setStorage: ... out of bounds for storage of size 0". A module that is called as a whole says
what happened before it comes to that.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

log = logging.getLogger("slicelock")

OFFLOADED = (
    "slicelock: {what} is offloaded to host memory, because another run has its turn on the device. "
    "Use it inside a turn; to save a model without one, use state_dict() of the TorchOffload hook."
)
MESSAGE = OFFLOADED.format(what="this tensor")
SCRATCH_BYTES = 8
LOOKED_AT = 96
"""Bytes of torch's StorageImpl that are compared; it has no fewer in any version with the flag."""


class Guard(Protocol):
    """Forbids access to storages, and allows it again."""

    def forbid(self, storage: Any) -> None: ...
    def allow(self, storage: Any) -> None: ...


class NoGuard:
    """For builds of torch that have no such flag."""

    def forbid(self, storage: Any) -> None:
        return

    def allow(self, storage: Any) -> None:
        return


@dataclass(frozen=True, slots=True)
class NativeGuard:
    """torch sets the flag and clears it."""

    torch: Any

    def forbid(self, storage: Any) -> None:
        self.torch._C._set_storage_data_ptr_access_error_msg(storage._cdata, MESSAGE)

    def allow(self, storage: Any) -> None:
        self.torch._C._clear_storage_data_ptr_access_error_msg(storage._cdata)


class ByteGuard:
    """torch sets the flag; the bytes that it changes at `offsets` of the storage are put back by hand."""

    def __init__(self, torch: Any, offsets: tuple[int, ...]) -> None:
        self._torch, self._offsets = torch, offsets
        self._before: dict[int, bytes] = {}

    def forbid(self, storage: Any) -> None:
        address = storage._cdata
        self._before.setdefault(address, self._read(address))
        self._torch._C._set_storage_data_ptr_access_error_msg(address, MESSAGE)

    def allow(self, storage: Any) -> None:
        before = self._before.pop(storage._cdata, None)
        if before is not None:
            for offset, value in zip(self._offsets, before, strict=True):
                ctypes.memset(storage._cdata + offset, value, 1)

    def _read(self, address: int) -> bytes:
        first, last = self._offsets
        both = ctypes.string_at(address + first, last - first + 1)
        return bytes((both[0], both[-1]))


class ClosedModules:
    """Modules that are away: calling one is an error that says so. Opened, they have their own hooks only."""

    def __init__(self) -> None:
        self._modules: list[Any] = []
        self._handles: list[Any] = []

    def choose(self, modules: Iterable[Any]) -> None:
        """Which they are; they are open."""
        self.open()
        self._modules = list(modules)

    def close(self) -> None:
        """Refuse calls, before anything that others do first, as FSDP gathers."""
        self.open()
        for module in self._modules:
            with suppress(RuntimeError):  # TorchScript's modules take no hooks; their tensors speak for them
                self._handles.append(module.register_forward_pre_hook(_refuse_call, prepend=True))

    def open(self) -> None:
        """Allow calls."""
        while self._handles:
            self._handles.pop().remove()


def _refuse_call(module: Any, _arguments: object) -> None:
    raise RuntimeError(OFFLOADED.format(what=f"this {type(module).__name__}"))


@cache  # once
def warn_of_no_guard() -> None:
    """Say what it means that there is none."""
    log.warning(
        "this torch cannot make an error of touching an offloaded tensor: outside a turn a kernel reads "
        "address 0, after which the process can only end; use offloaded tensors inside turns only"
    )


def guard_for(torch: Any) -> Guard:
    """The best guard that this torch allows."""
    if not hasattr(torch._C, "_set_storage_data_ptr_access_error_msg"):
        return NoGuard()
    if hasattr(torch._C, "_clear_storage_data_ptr_access_error_msg"):
        return NativeGuard(torch)
    offsets = _flag_offsets(torch)
    guard = ByteGuard(torch, offsets) if len(offsets) == 2 else None
    return guard if guard is not None and _works(torch, guard) else NoGuard()


def _flag_offsets(torch: Any) -> tuple[int, ...]:
    """Which bytes of a storage go from 0 to 1 when the flag is set, within words that had flags before."""
    scratch = torch.UntypedStorage(SCRATCH_BYTES)
    before = ctypes.string_at(scratch._cdata, LOOKED_AT)
    torch._C._set_storage_data_ptr_access_error_msg(scratch._cdata, "probe")
    after = ctypes.string_at(scratch._cdata, LOOKED_AT)
    return tuple(
        index
        for index in range(LOOKED_AT)
        if (before[index], after[index]) == (0, 1) and any(before[index // 8 * 8 : index // 8 * 8 + 8])
    )


def _works(torch: Any, guard: Guard) -> bool:
    scratch = torch.UntypedStorage(SCRATCH_BYTES)
    address = scratch.data_ptr()
    for _ in range(2):
        guard.forbid(scratch)
        if not _refuses(scratch):
            return False
        guard.allow(scratch)
        if _refuses(scratch) or scratch.data_ptr() != address:
            return False
    return True


def _refuses(storage: Any) -> bool:
    try:
        storage.data_ptr()
    except RuntimeError:
        return True
    return False
