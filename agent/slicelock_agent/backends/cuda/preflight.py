"""What keeps the driver from saving and restoring: known before anything is touched, each with its remedy."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from slicelock_agent.backends.cuda.discovery import NO_NCCL, Process, environment, unsafe_nccl
from slicelock_agent.nvml import Health

OLDEST, OLDEST_ARM = (575, 57, 8), (595,)
CAP_SYS_PTRACE = 19
MPS_VARIABLES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
NO_MPS = "stop it (echo quit | nvidia-cuda-mps-control)"
MPS_FOLDER, MPS_PROGRAM = "tmp/nvidia-mps", "nvidia-cuda-mps"  # as far as /proc tells its name
"""Where a process finds MPS that is not told otherwise, and who must run for that."""
MANAGED_MAP = 64 << 20
"""A CUDA process maps a few MiB of managed memory's device for the driver's own use; more is the job's."""


def version_of(text: str) -> tuple[int, ...]:
    """A driver's version as numbers, to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def of_gpu(uuid: str, health: Health, machine: str = "") -> Iterator[str]:
    """Why processes on this GPU cannot be saved."""
    version, arm = version_of(health.driver), (machine or platform.machine()) == "aarch64"
    if version < OLDEST:
        yield f"driver {health.driver} cannot save processes yet; install 580 (575.57.08 at the least)"
    elif arm and version < OLDEST_ARM:
        yield f"driver {health.driver} cannot save processes on this platform (aarch64); install 595 or later"
    if health.mig:
        yield f"{uuid} is in MIG mode, whose instances cannot be restored; turn it off (nvidia-smi -mig 0)"
    if health.vgpu:
        yield f"{uuid} is a vGPU, which cannot be saved; use a whole GPU (passthrough)"
    if health.mps:
        yield f"MPS clients cannot be saved; {NO_MPS}"
    if health.persistence is False:
        yield "persistence mode is off, so that a restore would fail; turn it on (nvidia-smi -pm 1)"


def of_agent(status: Path = Path("/proc/self/status")) -> Iterator[str]:
    """Why this agent cannot call the driver on other processes."""
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.MULTILINE)
    traces = capabilities is not None and int(capabilities[1], 16) >> CAP_SYS_PTRACE & 1
    if os.geteuid() != 0 or not traces:
        yield "saving other processes takes root (CAP_SYS_PTRACE); run slicelock-agent as root"


def of_library(program: Path | None) -> Iterator[str]:
    """Why the driver cannot be called from here."""
    if program is not None and which(program) is None:
        yield f"{program} is no program that can be run; correct SLICELOCK_CUDA_CHECKPOINT"
    elif program is None and not _has_bindings():
        yield "cuda-bindings is not installed; install it: pip install 'slicelock[cuda]'"


def _has_bindings() -> bool:
    try:
        return find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


def of_run(processes: Sequence[Process], devices: Sequence[str]) -> str:
    """Why the driver must not save these processes together; empty when it may."""
    for check in (_nccl, _mps, _managed):
        if why := check(processes, devices):
            return why
    return ""


def _nccl(processes: Sequence[Process], devices: Sequence[str]) -> str:
    """The save would succeed and the restore fail, with the run lost (measured)."""
    if len(processes) <= 1 and len(devices) <= 1:
        return ""
    missing = {one: lacks for one in processes if (lacks := unsafe_nccl(one.pid))}
    if not missing:
        return ""
    first = min(missing)
    what = f"{len(processes)} processes" if len(processes) > 1 else f"{len(devices)} GPUs"
    return (
        f"the driver cannot restore a run on {what} that uses NCCL: {first} was started without "
        f"{' '.join(missing[first])}. Start it with these, or with {NO_NCCL}=1 if it has no NCCL group "
        "when it has yielded, or give it hooks"
    )


def _mps(processes: Sequence[Process], devices: Sequence[str]) -> str:
    for one in processes:
        if set(MPS_VARIABLES) & set(environment(one.pid)):
            return f"{one} is a client of MPS, which cannot be saved; start it without {MPS_VARIABLES[0]}"
        if _finds_mps(one.pid):
            return f"{one} will be a client of MPS, which cannot be saved; {NO_MPS}"
    return ""


def _finds_mps(pid: int) -> bool:
    """Whether the process will find MPS; False where that cannot be seen."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/root", MPS_FOLDER).exists() and any(map(_is_mps, Path("/proc").iterdir()))
    return False


def _is_mps(process: Path) -> bool:
    with suppress(OSError):
        return process.name.isdigit() and (process / "comm").read_text().strip() == MPS_PROGRAM
    return False


def _managed(processes: Sequence[Process], devices: Sequence[str]) -> str:
    for one in processes:
        if (size := managed(one.pid)) > MANAGED_MAP:
            return (
                f"{one} has {size >> 20} MiB of managed memory (cudaMallocManaged), which the driver cannot "
                "save; use plain device memory (no paged optimizer), or give it hooks"
            )
    return ""


def managed(pid: int, read: Callable[[int], str] | None = None) -> int:
    """Bytes of address space that the process has mapped from the device of managed memory."""
    try:
        text = read(pid) if read else Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return 0
    total = 0
    for line in text.splitlines():
        if line.endswith("/dev/nvidia-uvm"):
            low, _, high = line.split(maxsplit=1)[0].partition("-")
            total += int(high, 16) - int(low, 16)
    return total
