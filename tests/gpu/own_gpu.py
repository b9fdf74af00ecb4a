"""The GPU of this process: workers of pytest-xdist share out those that there are."""

from __future__ import annotations

import os

from slicelock_agent.nvml import Nvml

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
NVML = Nvml()


def own_gpu() -> str:
    """Its UUID; IndexError in a worker for which there is none, BackendUnavailable where there are none."""
    return NVML.all()[int(WORKER.removeprefix("gw") or 0)].uuid


def users() -> set[int]:
    """Processes on it, as NVML tells."""
    return set(NVML.users(own_gpu()))


def used() -> int:
    """Bytes of it that are in use."""
    return NVML.memory(own_gpu())[0]
