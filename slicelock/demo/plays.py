"""What the demo can play: digits on a simulated accelerator, or PyTorch on a GPU where there are both."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slicelock.errors import ConfigurationError

PROBE_S = 60
DRIVER = Path("/dev/nvidiactl")
CAPACITY = 4 << 20  # one digits job's weights and optimizer state take 3.6 MB: two jobs do not fit
COMMON = (
    "Times run from the first request to the end of the last step, in every run alike; in series is the sum "
    "of the runs alone. A hand-over runs from the moment the device is free and asked for to its first use, "
    "moving the state included. Busy is the share of that time in which "
)
PROBE = """
import json, torch
gpu = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
print(json.dumps([gpu.name, str(getattr(gpu, "uuid", ""))] if gpu else []))
"""


@dataclass(frozen=True, slots=True)
class Play:
    """The jobs' script with its options, and the device that they share.

    `recorded`: the device itself records who used it; else that is put together from what jobs and Redis say.
    """

    job: str
    script: str
    device: str
    where: str
    definitions: str
    needs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    recorded: bool = False

    @property
    def path(self) -> Path:
        """The training script: in the installed package, else in the checkout."""
        package = Path(__file__).resolve().parents[1]
        places = (package / "_examples" / self.script, package.parent / "examples" / self.script)
        if found := next((place for place in places if place.is_file()), None):
            return found
        raise ConfigurationError(
            f"The demo's script is missing: there is no {places[0]}.", advice="Install slicelock again."
        )

    def check(self) -> None:
        """ConfigurationError when something that it runs is not installed."""
        if missing := [name for name in self.needs if importlib.util.find_spec(name) is None]:
            raise ConfigurationError(
                f"The demo needs {', '.join(missing)}.", advice="Run `pip install 'slicelock[demo]'`."
            )


DIGITS = Play(
    job="digits",
    script="digits_grpo.py",
    device="sim:0",
    where="one accelerator (sim)",
    definitions=f"{COMMON}the device's own record shows a turn computing.",
    needs=("numpy", "sklearn", "slicelock_agent"),
    env={"SLICELOCK_SIM_CAPACITY": str(CAPACITY), "SLICELOCK_SIM_DEVICE": "sim:0"},
    recorded=True,
)

MODEL = ("--width=512", "--layers=4", "--heads=8", "--batch=200", "--epochs=12", "--rate=0.0005")
"""A transformer whose weights and optimizer state take 150 MB."""


def adder(device: str, where: str, options: tuple[str, ...] = MODEL) -> Play:
    """PyTorch jobs that learn to add, on the device with this name for agents."""
    return Play(
        job="adder",
        script="torch_grpo.py",
        device=device,
        where=where,
        definitions=f"{COMMON}a job generated or trained.",
        needs=("torch", "slicelock_agent"),
        options=options,
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": device},
    )


def chosen() -> Play:
    """PyTorch where it is installed and finds a GPU, else digits."""
    if not DRIVER.exists() or any(map(_is_missing, ("torch", "pynvml"))):
        return DIGITS
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_S, check=False
        )
        name, uuid = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return DIGITS
    return adder(f"GPU-{uuid.removeprefix('GPU-')}" if uuid else "0", name)


def _is_missing(name: str) -> bool:
    return importlib.util.find_spec(name) is None
