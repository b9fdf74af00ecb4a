"""The agent's program with the fake driver's world instead of GPUs: FAKE_DRIVER_WORLD names it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from slicelock_agent import agent, backends, daemon
from slicelock_agent.host_budget import HostBudget

from tests.support import gpu_rig
from tests.support.fake_driver import VARIABLE, World

if __name__ == "__main__":
    gpu_rig.WORLD[:] = [World(Path(os.environ[VARIABLE]))]
    backends.OWN["cuda"] = "tests.support.gpu_rig:fake_cuda"
    agent.HostBudget = lambda: HostBudget(lambda: (1 << 42, 1 << 42))  # type: ignore[assignment,misc]
    sys.exit(daemon.main())
