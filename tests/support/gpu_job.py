"""A PyTorch job that takes turns when told to, and tells what came of it.

    python -m tests.support.gpu_job SLICE GIB [hook]

In: `turn` takes a turn (the first one makes the state), trains a step and yields; `hold` does the same, but
says so and yields at the next line. `touch` uses the GPU without a turn, `freeze` with all threads, `spin`
for some seconds without waiting for it; `end` ends. Out: JSON lines: {"ready": pid}, then for each turn its
number, a checksum of the state before the step and the seconds that it waited.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

import slicelock

MIB = 1 << 20
SPIN_CYCLES = 6_000_000_000
"""About three seconds."""


class Job:
    """`gib` GiB of random state that each step changes in a way that only depends on the seed."""

    def __init__(self, gib: float, hook: bool) -> None:
        import torch

        self.torch, self._blocks, self.parts = torch, int(gib * 16), list[Any]()
        self.k = 0
        if hook:
            from slicelock.hooks import TorchOffload

            slicelock.register(TorchOffload(lambda: self.parts))

    def make(self) -> None:
        self.torch.manual_seed(7)
        self.parts += [self.torch.randn(16 * MIB, device="cuda") for _ in range(self._blocks)]

    def checksum(self) -> float:
        return float(sum(part.double().sum() for part in self.parts))

    def step(self) -> None:
        for part in self.parts:
            part.mul_(1.01)
        self.torch.cuda.synchronize()


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def main(name: str, gib: str, *options: str) -> None:
    job, trainers = Job(float(gib), "hook" in options), slicelock.Slice(name)
    tell(ready=os.getpid())
    for line in sys.stdin:
        match line.strip():
            case "turn" | "hold" as what:
                begun = time.monotonic()
                with trainers.turn(phase="train"):
                    waited = time.monotonic() - begun
                    if not job.k:
                        job.make()
                    job.k += 1
                    before = job.checksum()
                    job.step()
                    if what == "hold":
                        tell(holding=job.k)
                        sys.stdin.readline()
                tell(k=job.k, checksum=before, waited=round(waited, 3))
            case "touch":
                tell(touched=job.checksum())
            case "spin":
                job.torch.cuda._sleep(SPIN_CYCLES)
                tell(spins=True)
            case "freeze":  # the call keeps the interpreter's lock: no other thread goes on either
                ctypes.PyDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), MIB)
                tell(touched=job.checksum())
            case _:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
