"""A CUDA process whose second thread beats, so that it can be seen what goes on while its state is saved.

    python -m tests.support.gpu_beats FILE [nccl FOLDER]

Each beat, ten a second, is a byte in FILE. In: `touch` uses the GPU as PyTorch does, which lets other
threads go on; `freeze` keeps the interpreter's lock meanwhile; `reduce` begins an all-reduce in a group of
one, behind three seconds of other work, and does not wait; `sum` does. Out: `ready`, then a line for each.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

MIB = 1 << 20
BUSY_CYCLES = 6_000_000_000


def beat(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        while True:
            file.write(b".")
            time.sleep(0.1)


def join(folder: str) -> None:
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=torch.device("cuda:0")
    )
    torch.distributed.all_reduce(torch.ones(MIB, device="cuda"))


def main(path: str, *group: str) -> None:
    tensor = torch.ones(64 * MIB, device="cuda")
    if group:
        join(group[1])
    torch.cuda.synchronize()
    threading.Thread(target=beat, args=(Path(path),), daemon=True).start()
    print("ready", flush=True)
    work: Any = None
    for line in sys.stdin:
        told: object = "done"
        match line.strip():
            case "touch":
                told = int(tensor.sum())
            case "freeze":
                ctypes.PyDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), MIB)
            case "reduce":
                torch.cuda._sleep(BUSY_CYCLES)
                work = torch.distributed.all_reduce(tensor, async_op=True)
            case "sum":
                work.wait()
                told = int(tensor.sum())
        print(told, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
