"""A device made of host memory, so that moving tensors can be tested without one: CPU tensors live on it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from slicelock.hooks.torch_offload.address_space import AddressSpace
from slicelock.hooks.torch_offload.layout import Place
from slicelock.hooks.torch_offload.pool import Allowance

BLOCK = 2 << 20
CHUNK = 64 << 10


class CountingGuard:
    """Knows which storages are forbidden."""

    def __init__(self) -> None:
        self.forbidden: set[int] = set()

    def forbid(self, storage: Any) -> None:
        self.forbidden.add(id(storage))

    def allow(self, storage: Any) -> None:
        self.forbidden.discard(id(storage))


class HostDevice:
    """Copies are carried out only when they are waited for, as late as a real device might."""

    def __init__(self, name: str) -> None:
        self.name = self.key = name
        self.free = 1 << 40
        self.used = 0
        self.cached = 0
        self.copied: list[tuple[str, int]] = []
        self.pinned: dict[int, int] = {}
        self.streams: list[int] = []
        self.rooms: list[int] = []
        self.checked: list[Place] = []
        self.fail: Callable[[str], None] = lambda _what: None
        self._queue: list[tuple[int, int, int]] = []
        self._through = 0
        self._bus = threading.Lock()

    def entered(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def pin(self, address: int, nbytes: int) -> None:
        self.fail("pin")
        self.pinned[address] = nbytes

    def unpin(self, address: int) -> None:
        del self.pinned[address]

    def settle(self) -> None:
        self.fail("settle")

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        self._copy("out", host, address, nbytes)

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        self._copy("in", address, host, nbytes)

    def _copy(self, way: str, target: int, source: int, nbytes: int) -> None:
        self.fail(way)
        self.copied.append((way, nbytes))
        self._queue.append((target, source, nbytes))

    def mark(self) -> int:
        return len(self._queue)

    def wait(self, mark: int) -> None:
        self.fail("wait")
        self._carry_out(mark)

    def is_past(self, mark: int) -> bool:
        return self._through >= mark

    def finish(self) -> None:
        self._carry_out(len(self._queue))

    def _carry_out(self, end: int) -> None:
        with self._bus:
            for target, source, nbytes in self._queue[self._through : end]:
                ctypes.memmove(target, source, nbytes)
            self._through = max(self._through, end)

    def give_back(self) -> int:
        self.fail("give_back")
        given, self.cached = self.cached, 0
        return given

    def free_bytes(self) -> int:
        return self.free

    def in_use(self) -> int:
        return self.used

    def allocating_for(self, stream: int) -> AbstractContextManager[Any]:
        self.fail("allocate")
        self.streams.append(stream)
        return nullcontext()

    def make_room(self, nbytes: int) -> None:
        self.rooms.append(nbytes)

    def check(self, places: Sequence[Place], graphs_elsewhere: bool) -> None:
        self.fail("check")
        self.checked = list(places)


class HostMachine:
    """CPU tensors are on device 0, unless `on` has them elsewhere (None: on none). Memory from malloc is as
    large as was asked for: what follows is malloc's own.
    """

    granularity = 1

    def __init__(self, limit: int | None = 64 << 20, guard: Any = None) -> None:
        self.guard = guard or CountingGuard()
        self.allowance = Allowance(limit)
        self.block, self.chunk = BLOCK, CHUNK
        self.devices: dict[int, HostDevice] = {}
        self.on: dict[int, int | None] = {}

    def index_of(self, tensor: Any) -> int | None:
        return self.on.get(tensor.untyped_storage()._cdata, 0)

    def device(self, index: int) -> HostDevice:
        return self.devices.setdefault(index, HostDevice(f"host:{index}"))

    def memory(self, index: int) -> AddressSpace:
        return AddressSpace(64 << 20)
