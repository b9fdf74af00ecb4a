"""A stand-in for `torch_memory_saver` that ends the process as the library does, which a test can see."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class Ended(BaseException):
    """The library has ended the process."""


class Device:
    """A GPU with so much memory, as `torch.cuda` shows it."""

    def __init__(self, total: int) -> None:
        self.free = total
        self.settled = 0
        self.segments: list[dict[str, Any]] = []

    def device_count(self) -> int:
        return 2

    def memory_reserved(self, index: int) -> int:
        return sum(one["total_size"] for one in self.memory_snapshot() if one["device"] == index)

    def memory_snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        return self.segments

    def mem_get_info(self, index: int) -> tuple[int, int]:
        assert index == 0, "asking about the other device would make a context there"
        return self.free, 0

    def synchronize(self, index: int) -> None:
        self.settled += 1

    def empty_cache(self) -> None:
        return

    def current_device(self) -> int:
        return 0


class Library:
    """`torch_memory_saver`: memory by tag; it ends the process at what it does not allow."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._impl: Any = None
        self.retain_cpu_backup = False
        self.memory: dict[str, int] = {}
        self.paused: set[str] = set()
        self.calls: list[tuple[str, str | None]] = []

    def allocate(self, tag: str, nbytes: int) -> None:
        with self.region(tag=tag, enable_cpu_backup=True):
            self.take(tag, nbytes, self._impl._mem_pools[tag, True, 0].id)

    def take(self, tag: str, nbytes: int, pool: tuple[int, int]) -> None:
        """Memory of a tag in one more segment of torch's."""
        self.memory[tag] = self.memory.get(tag, 0) + nbytes
        self._device.free -= nbytes
        facts = {"device": 0, "address": len(self._device.segments) << 40, "total_size": nbytes}
        self._device.segments.append({**facts, "segment_pool_id": pool, "tag": tag})

    def is_mapped(self, address: int) -> bool:
        """The driver's answer."""
        return all(
            one["tag"] not in self.paused for one in self._device.segments if one["address"] == address
        )

    @contextmanager
    def region(self, tag: str = "default", enable_cpu_backup: bool = False) -> Any:
        if self._impl is None:
            self._impl = SimpleNamespace(_mem_pools={})
        pools = self._impl._mem_pools
        pools.setdefault((tag, enable_cpu_backup, 0), SimpleNamespace(id=(0, len(pools) + 1)))
        yield

    @contextmanager
    def cuda_graph(self, graph: object, tag: str = "default") -> Any:
        yield

    def pause(self, tag: str | None = None) -> None:
        self.calls.append(("pause", tag))
        for one in self._matching(tag):
            if one in self.paused:
                raise Ended
            self.paused.add(one)
            self._device.free += self.memory[one]

    def resume(self, tag: str | None = None) -> None:
        self.calls.append(("resume", tag))
        for one in self._matching(tag):
            if one not in self.paused or self._device.free < self.memory[one]:
                raise Ended
            self.paused.remove(one)
            self._device.free -= self.memory[one]

    def _matching(self, tag: str | None) -> list[str]:
        return [one for one in self.memory if tag in (None, one)]
