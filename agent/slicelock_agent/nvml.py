"""What NVML tells of this machine's GPUs. The only place that imports it.

Memory figures are taken as they are. Process lists are hints: inside a container they may name pids of
another namespace or nobody, and a process whose state is saved is not in them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from slicelock.errors import BackendUnavailable


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `total` is its memory in bytes. `silent`: why it does not answer; empty when it does."""

    uuid: str
    index: int
    name: str
    total: int
    silent: str = ""


VGPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU; a whole GPU that is passed through is none


@dataclass(frozen=True, slots=True)
class Health:
    """What decides whether a GPU's processes can be saved. None: it cannot be told."""

    driver: str
    mig: bool | None = None
    persistence: bool | None = None
    mps: bool = False
    vgpu: bool = False
    pcie: str = ""


class Gpus(Protocol):
    """This machine's GPUs, by UUID. Every call may raise BackendUnavailable, with the reason and a remedy."""

    def all(self) -> Sequence[Gpu]:
        """Every GPU, by index."""
        ...

    def memory(self, uuid: str) -> tuple[int, int]:
        """Bytes in use, and bytes that are free."""
        ...

    def users(self, uuid: str) -> dict[int, int | None]:
        """Processes that compute on the GPU, and the bytes that each has there if that is told."""
        ...

    def busy(self, uuid: str) -> int | None:
        """How much of the last moment something ran on it, in percent."""
        ...

    def health(self, uuid: str) -> Health:
        """What decides whether its processes can be saved."""
        ...


class Nvml:
    """The GPUs as the driver's management library shows them; it is loaded with the first question."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: dict[str, Any] = {}
        self._gpus: list[Gpu] = []

    def all(self) -> Sequence[Gpu]:
        self._open()
        return self._gpus

    def memory(self, uuid: str) -> tuple[int, int]:
        found = self._ask("nvmlDeviceGetMemoryInfo", uuid)
        return int(found.used), int(found.free)

    def users(self, uuid: str) -> dict[int, int | None]:
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses", uuid)
        return {int(one.pid): _bytes(one.usedGpuMemory) for one in listed}

    def busy(self, uuid: str) -> int | None:
        return self._maybe(lambda: int(self._ask("nvmlDeviceGetUtilizationRates", uuid).gpu))

    def health(self, uuid: str) -> Health:
        self._open()
        return Health(
            driver=_text(self._ask("nvmlSystemGetDriverVersion")),
            mig=self._maybe(lambda: self._ask("nvmlDeviceGetMigMode", uuid)[0] == 1, absent=False),
            persistence=self._maybe(lambda: self._ask("nvmlDeviceGetPersistenceMode", uuid) == 1),
            mps=bool(self._maybe(lambda: self._ask("nvmlDeviceGetMPSComputeRunningProcesses", uuid))),
            vgpu=self._maybe(lambda: self._ask("nvmlDeviceGetVirtualizationMode", uuid)) == VGPU,
            pcie=self._maybe(lambda: self._link(uuid)) or "",
        )

    def _link(self, uuid: str) -> str:
        now = self._ask("nvmlDeviceGetCurrPcieLinkGeneration", uuid)
        most = self._ask("nvmlDeviceGetMaxPcieLinkGeneration", uuid)
        return f"PCIe {now} of {most} x{self._ask('nvmlDeviceGetCurrPcieLinkWidth', uuid)}"

    def _open(self) -> None:
        if self._library is not None:
            return
        try:
            library = import_module("pynvml")
        except ImportError:
            raise BackendUnavailable(
                "GPUs cannot be looked at: nvidia-ml-py is not installed.",
                advice="Install it: pip install 'slicelock[cuda]'.",
            ) from None
        try:
            library.nvmlInit()
            self._read(library)
        except library.NVMLError as failure:
            raise BackendUnavailable(
                f"There is no NVIDIA driver that answers here ({failure}).",
                advice="Check it with nvidia-smi; in a container, start it with its GPUs.",
            ) from None
        self._library = library

    def _read(self, library: Any) -> None:
        gpus: list[Gpu] = []
        for index in range(library.nvmlDeviceGetCount()):
            try:
                gpus.append(self._gpu(library, index))
            except library.NVMLError as failure:  # the others may be served all the same
                gpus.append(Gpu("", index, "", 0, f"GPU {index} does not answer: {failure}."))
        self._gpus = gpus

    def _gpu(self, library: Any, index: int) -> Gpu:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid, name = _text(library.nvmlDeviceGetUUID(handle)), _text(library.nvmlDeviceGetName(handle))
        total = int(library.nvmlDeviceGetMemoryInfo(handle).total)
        self._handles[uuid] = handle
        return Gpu(uuid, index, name, total)

    def _ask(self, question: str, uuid: str = "") -> Any:
        """Ask a GPU, or without a UUID the driver."""
        self._open()
        try:
            return getattr(self._library, question)(*[self._handles[uuid]] if uuid else [])
        except self._library.NVMLError as failure:
            raise BackendUnavailable(
                f"{uuid or 'The driver'} does not answer {question}: {failure}."
            ) from failure

    def _maybe(self, ask: Any, absent: Any = None) -> Any:
        """The answer, or `absent` where this GPU or this library has none."""
        with contextlib.suppress(BackendUnavailable, AttributeError):
            return ask()
        return absent


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: int | None) -> int | None:
    """A container's driver says "not available" as the largest number there is."""
    return None if value is None or value >= 1 << 62 else int(value)


def resolve(names: Sequence[str], gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """UUIDs for GPUs given as `all`, by index or by UUID; BackendUnavailable names one that is not there, or
    does not answer.
    """
    known = {**{str(gpu.index): gpu for gpu in gpus}, **{gpu.uuid: gpu for gpu in gpus if gpu.uuid}}
    chosen: list[Gpu] = []
    for name in names:
        if name not in known and not (name == "all" and gpus):
            have = ", ".join(f"{gpu.index} ({gpu.uuid or 'it does not answer'})" for gpu in gpus) or "none"
            what = "" if name == "all" else f" {name}"
            raise BackendUnavailable(f"There is no GPU{what} here.", advice=f"This machine has {have}.")
        chosen += gpus if name == "all" else [known[name]]
    if silent := next((gpu.silent for gpu in chosen if gpu.silent), ""):
        raise BackendUnavailable(silent, advice="Look at it with nvidia-smi, or name the other GPUs only.")
    found = [gpu.uuid for gpu in chosen]
    if twice := {name for name in found if found.count(name) > 1}:
        raise BackendUnavailable(f"GPU {twice.pop()} is named twice.", advice="Name each GPU once.")
    return tuple(found)
