"""A CUDA process with much of what a job may have: it works once for each line of input, and tells if it did.

A captured graph, pinned host memory, events, cuBLAS and cuDNN handles, a side stream and a private memory
pool; with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True mapped memory as well.
"""

from __future__ import annotations

import sys

import torch

SIZE = 512


class Everything:
    """What is made once and used after each pause."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        self.left, self.right = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))
        self.convolution = torch.nn.Conv2d(3, 8, 3).cuda()
        self.image = torch.randn(4, 3, 64, 64, device="cuda")
        self.pinned = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
        self.side, self.event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        self.pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self.pool):
            self.inside = torch.full((1 << 20,), 3.0, device="cuda")
        self.work()  # handles and workspaces exist before the capture
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.product = self.left @ self.right
        self.graph.replay()
        self.expected = self.results()

    def work(self) -> torch.Tensor:
        return self.convolution(self.image).sum() + (self.left @ self.right).sum()

    def results(self) -> list[torch.Tensor]:
        """Everything is used; the results are in host memory."""
        self.graph.replay()
        with torch.cuda.stream(self.side):
            moved = self.pinned.to("cuda", non_blocking=True) * 2
            self.event.record()
        self.event.synchronize()
        parts = [self.product, self.work(), moved, self.inside]
        return [part.detach().cpu() for part in parts]

    def is_right(self) -> bool:
        return all(torch.equal(a, b) for a, b in zip(self.results(), self.expected, strict=True))


def main() -> None:
    with torch.no_grad():
        made = Everything()
        print("ready", flush=True)
        for _ in sys.stdin:
            print("right" if made.is_right() else "wrong", flush=True)


if __name__ == "__main__":
    main()
