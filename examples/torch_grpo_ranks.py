# pyright: basic, reportMissingImports=false
"""The loop of torch_grpo.py on several ranks: each grades sums of its own, and all learn together.

    SLICELOCK_MODE=off torchrun --nproc-per-node=2 torch_grpo_ranks.py
    SLICELOCK_JOB=ranks SLICELOCK_MEMBERS=auto torchrun --nproc-per-node=2 torch_grpo_ranks.py

With SLICELOCK_MEMBERS=auto the ranks are members of one run, which the launcher names. A turn begins when all
of them have asked for it, and all take the same pauses. Communicators stay where they are.
"""

from __future__ import annotations

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import sys
import time

try:
    import torch
except ImportError as missing:
    sys.exit(f"This example needs PyTorch ({missing}): pip install torch.")
import torch.distributed as dist
import torch_grpo as grpo
from torch import Tensor

import slicelock


def train() -> None:
    options, rank = grpo.arguments(__doc__), dist.get_rank()
    device = device_of(int(os.environ["LOCAL_RANK"]))
    tell = grpo.teller(options) if rank == 0 else lambda event, **facts: None
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)  # all ranks begin with the same weights
    model = grpo.Adder(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0.0)
    optimizer.register_step_pre_hook(lambda *_: average_gradients(model))
    trainers = slicelock.Slice(options.slice)  # [slicelock] the GPUs of all ranks
    if device.type == "cuda":  # [slicelock] each rank moves its own part
        slicelock.register(slicelock.hooks.TorchOffload(model, optimizer))

    @slicelock.away(phase="reward")  # [slicelock] the GPUs are others' when all ranks are here
    def grade(answers: Tensor, truth: Tensor) -> Tensor:
        time.sleep(options.grade_seconds)
        return (answers == truth[:, None]).float()

    with trainers.turn(phase="train"):  # [slicelock] begins when all ranks have asked
        model.to(device)
        noise = torch.Generator(device).manual_seed(options.seed * 1_000 + rank)
        for step in range(1, options.steps + 1):
            seed = (options.seed * 1_000 + rank) * 1_000_003 + step
            prompts, truth = grpo.sums(options.batch, options.digits, seed)
            answers, logp = grpo.generate(model, prompts, options, noise)
            rewards = grade(answers, truth)
            batch = (prompts, answers, logp, grpo.advantages(rewards))
            loss = grpo.learn(model, optimizer, options.epochs, batch=batch)
            right = grpo.accuracy(model, options)
            tell("step", step=step, reward=float(rewards.mean()), loss=loss, accuracy=right)
        tell("end", accuracy=grpo.accuracy(model, options), digest=grpo.digest(model, optimizer))


def device_of(local_rank: int) -> torch.device:
    """This rank's own GPU; the CPU where there are not enough of them."""
    enough = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    return torch.device("cuda", local_rank) if enough else torch.device("cpu")


def average_gradients(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


if __name__ == "__main__":
    if "LOCAL_RANK" not in os.environ:
        sys.exit("This example has several ranks: start it with torchrun, as its first lines show.")
    own_gpu = device_of(int(os.environ["LOCAL_RANK"]))
    if own_gpu.type == "cuda":
        torch.cuda.set_device(own_gpu)
    dist.init_process_group("nccl" if own_gpu.type == "cuda" else "gloo")
    try:
        train()
    except slicelock.SlicelockError as error:
        sys.exit(f"{error}")
    finally:
        dist.destroy_process_group()
