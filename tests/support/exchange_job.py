"""A PyTorch job on a fake GPU of the fake driver's world, whose memory does not hold two of them.

    python -m tests.support.exchange_job SLICE

In: `turn` takes a turn (the first one makes the state), changes the state and yields; `end` ends. Out: JSON
lines: {"ready": pid}, then for each turn its number and a checksum of the state before the change. CPU
tensors stand for the GPU's; the world counts their bytes, and whoever takes more than there is gets an error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import slicelock
from slicelock.hooks import TorchOffload
from tests.support.fake_driver import VARIABLE, World, used
from tests.support.torch_machine import HostDevice, HostMachine

GPU = "GPU-aaaa"
MIB = 1 << 20
PARTS = 24
SIZE = PARTS * 2 * MIB
"""Bytes of state of one job."""
BUS_S = 0.01
"""What a copy takes at least, so that a switch has a middle."""


class SharedDevice(HostDevice):
    """Host memory whose bytes count as those of a GPU that several processes share."""

    def __init__(self, world: World, parts: list[Any]) -> None:
        super().__init__(GPU)
        self._world, self._parts = world, parts

    def take(self, nbytes: int) -> None:
        """Count bytes of this process; RuntimeError when the GPU does not have them."""
        with self._world.open() as world:
            if used(world, GPU) + nbytes > world["gpus"][GPU]:
                world["log"].append(["out of memory", os.getpid()])
                raise RuntimeError("CUDA out of memory")
            proc = world["procs"].setdefault(
                str(os.getpid()),
                {"mem": {GPU: 0}, "state": "running", "poisoned": False, "saved": 0, "busy_s": 0.0,
                 "untold": False, "group": ""},
            )  # fmt: skip
            proc["mem"][GPU] += nbytes

    def make_room(self, nbytes: int) -> None:
        self.take(nbytes)

    def give_back(self) -> int:
        there = sum(part.untyped_storage().nbytes() for part in self._parts)
        with self._world.open() as world:
            proc = world["procs"][str(os.getpid())]
            given, proc["mem"][GPU] = proc["mem"][GPU] - there, there
        return max(0, given)

    def free_bytes(self) -> int:
        with self._world.open() as world:
            return world["gpus"][GPU] - used(world, GPU)

    def _copy(self, way: str, target: int, source: int, nbytes: int) -> None:
        time.sleep(BUS_S)
        super()._copy(way, target, source, nbytes)


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def main(name: str) -> None:
    import torch

    parts: list[Any] = []
    world, machine = World(Path(os.environ[VARIABLE])), HostMachine()
    machine.block = machine.chunk = 2 * MIB
    machine.devices[0] = device = SharedDevice(world, parts)
    slicelock.register(TorchOffload(lambda: parts, machine=machine))
    trainers, k = slicelock.Slice(name), 0
    tell(ready=os.getpid())
    for line in sys.stdin:
        if line.strip() != "turn":
            return
        with trainers.turn():
            if not parts:
                device.take(SIZE)
                parts += [torch.full((MIB // 2,), float(number)) for number in range(PARTS)]
            k += 1
            before = float(sum(part.double().sum() * (place + 1) for place, part in enumerate(parts)))
            for part in parts:
                part.add_(1)
        tell(k=k, checksum=before)


if __name__ == "__main__":
    main(*sys.argv[1:])
