"""DDP, FSDP1 and FSDP2 on one GPU: the local shards move, communicators are not touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slicelock.hooks import TorchOffload

Make = Callable[..., TorchOffload]


@pytest.fixture
def group(torch: Any, tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    torch.distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1, device_id=torch.device("cuda:0")
    )
    yield
    torch.distributed.destroy_process_group()


def fsdp2(torch: Any, model: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def fsdp1(torch: Any, model: Any) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, use_orig_params=False)


def fsdp1_with_the_original_parameters(torch: Any, model: Any) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, use_orig_params=True)


def ddp(torch: Any, model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def train(torch: Any, wrap: Callable[[Any, Any], Any], between: Callable[[Any, Any], None]) -> list[float]:
    torch.manual_seed(3)
    model = wrap(torch, torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for seed in range(4):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        loss = model(torch.randn(32, 256, device="cuda", generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        between(model, optimizer)
        optimizer.zero_grad()
    return losses


@pytest.mark.filterwarnings("ignore")  # torch deprecates some of these ways, and warns of them
@pytest.mark.parametrize("wrap", [fsdp2, fsdp1, fsdp1_with_the_original_parameters, ddp])
def test_training_goes_on_bit_for_bit(torch: Any, offload: Make, group: None, wrap: Any) -> None:
    hooks: dict[int, TorchOffload] = {}
    moved: list[int] = []

    def switch(model: Any, optimizer: Any) -> None:
        hook = hooks.setdefault(id(model), hooks.get(id(model)) or offload(model, optimizer))
        moved.append(hook.offload())
        hook.reload()

    expected = train(torch, wrap, lambda model, optimizer: None)
    assert train(torch, wrap, switch) == expected
    # parameters, gradients and two moments of four layers, in float32
    assert min(moved) >= 4 * 4 * 4 * (256 * 256 + 256)
