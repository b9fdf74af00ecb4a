"""What moving tensors needs from a device, and a CUDA device that offers it."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from slicelock.errors import ConfigurationError
from slicelock.hooks.torch_offload.address_space import AddressSpace
from slicelock.hooks.torch_offload.driver import Driver
from slicelock.hooks.torch_offload.guard import Guard, NoGuard, guard_for, warn_of_no_guard
from slicelock.hooks.torch_offload.layout import Place
from slicelock.hooks.torch_offload.pool import Allowance, Memory, Pinner, block_for, process_allowance
from slicelock.hooks.torch_offload.refusals import Segments, instances_of, refuse_by_allocator, refuse_graphs

log = logging.getLogger("slicelock")

CHUNK = 128 << 20
"""Allocated, admitted and released at a time. What was just freed the driver still clears for a while, so
that larger allocations wait longer for it; smaller ones cost more calls.
"""
GRANULARITY = 512  # of torch's allocator
SMALL = 1 << 20
"""Up to so many bytes torch's allocator puts together into segments of 2 MiB."""
ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
UNLIMITED = 1 << 40
"""Address space for a pool without a limit; it costs nothing."""


class Device(Pinner, Protocol):
    """One device. Copies are queued in order on a stream of their own."""

    name: str
    key: str
    """The same for every process that sees the device, by whatever index."""

    def entered(self) -> AbstractContextManager[Any]:
        """Work on this device in the present thread."""
        ...

    def settle(self) -> None:
        """Wait for everything that the job has queued."""
        ...

    def copy_out(self, host: int, address: int, nbytes: int) -> None: ...
    def copy_in(self, address: int, host: int, nbytes: int) -> None: ...

    def mark(self) -> Any:
        """A mark behind the copies queued so far."""
        ...

    def wait(self, mark: Any) -> None: ...
    def is_past(self, mark: Any) -> bool:
        """Whether there would be nothing to wait for."""
        ...

    def finish(self) -> None:
        """Wait for all copies."""
        ...

    def give_back(self) -> int:
        """Return cached memory to the driver; how many bytes."""
        ...

    def free_bytes(self) -> int:
        """What can be allocated."""
        ...

    def in_use(self) -> int:
        """Bytes of all tensors on the device, whoever's they are in this process."""
        ...

    def allocating_for(self, stream: int) -> AbstractContextManager[Any]:
        """Allocate for the use on this stream."""
        ...

    def make_room(self, nbytes: int) -> None:
        """Have so many bytes ready for allocations of more than SMALL bytes, in one piece."""
        ...

    def check(self, places: Sequence[Place], graphs_elsewhere: bool) -> None:
        """SnapshotFailed, naming what must not be offloaded. Runs while copies are under way."""
        ...


class Machine(Protocol):
    """Where the devices come from."""

    guard: Guard
    allowance: Allowance
    granularity: int
    """What its allocator hands out is a multiple of so many bytes."""
    block: int
    """Bytes of host memory that are pinned at a time."""
    chunk: int
    """Bytes that are released or admitted at a time."""

    def index_of(self, tensor: Any) -> int | None:
        """The device that a tensor is on; None if it is not one to offload from."""
        ...

    def device(self, index: int) -> Device: ...
    def memory(self, index: int) -> Memory:
        """Address space for the device's pool."""
        ...


class CudaDevice:
    """An NVIDIA GPU as torch sees it."""

    def __init__(self, torch: Any, driver: Driver, index: int) -> None:
        self.name = f"cuda:{index}"
        self._torch, self._driver, self._index = torch, driver, index
        self.key = key_of(torch, index)
        with self.entered():
            self._stream = torch.cuda.Stream(device=index)
        self._handle = int(self._stream.cuda_stream)
        self._graphs = instances_of(torch.cuda.CUDAGraph)
        self._splits = not any("max_split_size" in os.environ.get(name, "") for name in ALLOCATOR_SETTINGS)

    def entered(self) -> AbstractContextManager[Any]:
        return self._torch.cuda.device(self._index)

    def pin(self, address: int, nbytes: int) -> None:
        with self.entered():
            self._torch.cuda.mem_get_info(self._index)  # makes the device's context this thread's
            self._driver.pin(address, nbytes)

    def unpin(self, address: int) -> None:
        with self.entered():
            self._driver.unpin(address)

    def settle(self) -> None:
        self._torch.cuda.synchronize(self._index)

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        self._driver.copy(host, address, nbytes, self._handle)

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        self._driver.copy(address, host, nbytes, self._handle)

    def mark(self) -> Any:
        return self._stream.record_event()

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def is_past(self, mark: Any) -> bool:
        return bool(mark.query())

    def finish(self) -> None:
        self._stream.synchronize()

    def give_back(self) -> int:
        before = self._torch.cuda.memory_reserved(self._index)
        self._torch.cuda.empty_cache()
        return max(0, before - self._torch.cuda.memory_reserved(self._index))

    def free_bytes(self) -> int:
        free, _ = self._torch.cuda.mem_get_info(self._index)
        cached = self._torch.cuda.memory_reserved(self._index) - self._torch.cuda.memory_allocated(
            self._index
        )
        return int(free) + int(cached)

    def in_use(self) -> int:
        return int(self._torch.cuda.memory_allocated(self._index))

    @contextmanager
    def allocating_for(self, stream: int) -> Generator[None]:
        cuda = self._torch.cuda
        made = cuda.ExternalStream(stream, device=self._index) if stream else None
        used = made or cuda.default_stream(self._index)
        with cuda.stream(used):
            yield
        # What is queued there may still write here: in deterministic mode torch fills what it allocates.
        self._stream.wait_stream(used)

    def make_room(self, nbytes: int) -> None:
        if (
            self._splits
        ):  # at once free again, and kept by the allocator; not by `torch.empty`, which may fill it
            block = self._torch.cuda.caching_allocator_alloc(nbytes, self._index)
            self._torch.cuda.caching_allocator_delete(block)

    def check(self, places: Sequence[Place], graphs_elsewhere: bool) -> None:
        segments = Segments.of(self._torch, self._index)
        refuse_by_allocator(places, segments)
        if not graphs_elsewhere:
            refuse_graphs(segments.of_graphs or bool(self._graphs))


class CudaMachine:
    """The GPUs that torch sees. ConfigurationError where tensors cannot be moved."""

    granularity = GRANULARITY

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._driver: Driver | None = None
        self._devices: dict[int, CudaDevice] = {}
        self.guard = guard_for(torch)
        if not _warn_of_no_gpu(torch) and isinstance(self.guard, NoGuard):
            warn_of_no_guard()
        self.allowance = process_allowance()
        self.block, self.chunk = block_for(self.allowance.limit), CHUNK

    def index_of(self, tensor: Any) -> int | None:
        return tensor.get_device() if tensor.is_cuda else None

    def device(self, index: int) -> CudaDevice:
        if self._driver is None:
            self._refuse_backend()
            self._driver = Driver()
        if index not in self._devices:
            self._devices[index] = CudaDevice(self._torch, self._driver, index)
        return self._devices[index]

    def memory(self, index: int) -> Memory:
        return AddressSpace(
            self.allowance.limit or UNLIMITED, _node_of(self._torch.cuda.get_device_properties(index))
        )

    def _refuse_backend(self) -> None:
        backend = self._torch.cuda.get_allocator_backend()
        if backend != "native":
            raise ConfigurationError(
                f"torch allocates device memory through {backend!r}, which TorchOffload cannot release.",
                advice="Use torch's own allocator (no `backend:` in PYTORCH_CUDA_ALLOC_CONF).",
            )


def _warn_of_no_gpu(torch: Any) -> bool:
    """Whether there is none. By the count, which torch takes from NVML: asking for more would begin CUDA,
    which forks do not bear.
    """
    if torch.version.cuda is None:
        why, remedy = "this torch is built without CUDA", "Install a CUDA build of torch"
    elif not torch.cuda.device_count():
        why, remedy = "torch sees no GPU", "Look at `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    else:
        return False
    log.warning(
        "TorchOffload has nothing to move: %s. %s, or register it only where torch.cuda.is_available().",
        why,
        remedy,
    )
    return True


def key_of(torch: Any, index: int) -> str:
    """The GPU's UUID as NVML writes it; its index where torch does not tell (before 2.4)."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{str(uuid).removeprefix('GPU-')}" if uuid else f"cuda:{index}"


def _node_of(facts: Any) -> int | None:
    """The NUMA node that a GPU hangs on, if the machine says."""
    try:
        place = f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"
        return int(Path(f"/sys/bus/pci/devices/{place}/numa_node").read_text())
    except (AttributeError, OSError, ValueError):
        return None
