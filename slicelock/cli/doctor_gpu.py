"""The GPU part of `slicelock doctor`: what an agent on this machine would find, asked of the agent itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from slicelock.findings import Finding, Severity

DRIVER = Path("/dev/nvidiactl")
PATIENCE_S = 60.0


def gpus() -> Iterator[Finding]:
    """Findings for each GPU, each process on one, and host memory; nothing where there is no driver."""
    if not DRIVER.exists():
        return
    if find_spec("pynvml") is None:
        yield Finding(
            "GPUs",
            Severity.WARNING,
            "nvidia-ml-py is not installed",
            "An agent here could not serve GPUs; install it: pip install 'slicelock[cuda]'.",
        )
        return
    yield from ask([sys.executable, "-m", "slicelock_agent", "--check", "--json"])


def ask(command: list[str]) -> Iterator[Finding]:
    """Run the agent's check, and read what it prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        told = [
            Finding(one["check"], Severity(one["severity"]), one["found"], one["remedy"], one["meaning"])
            for one in json.loads(done.stdout)
        ]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as failure:
        yield Finding(
            "GPUs",
            Severity.CRITICAL,
            f"they could not be looked at: {failure}",
            "Run slicelock-agent --check.",
        )
        return
    yield from told
