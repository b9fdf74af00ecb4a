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
    """Findings for each GPU, each run with processes on one, what is saved, and host memory."""
    if not DRIVER.exists():
        yield Finding("GPUs", Severity.OK, "there is no NVIDIA driver here, and nothing to look at")
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
    except (OSError, subprocess.TimeoutExpired) as failure:
        yield _unseen(str(failure))
        return
    try:
        told = [
            Finding(one["check"], Severity(one["severity"]), one["found"], one["remedy"], one["meaning"])
            for one in json.loads(done.stdout)
        ]
    except (ValueError, KeyError, TypeError):
        [*_, last] = ["it said nothing that makes sense", *done.stderr.strip().splitlines()]
        yield _unseen(last)
        return
    yield from told


def _unseen(why: str) -> Finding:
    found = f"they could not be looked at: {why}"
    return Finding("GPUs", Severity.CRITICAL, found, "Run slicelock-agent --check.")
