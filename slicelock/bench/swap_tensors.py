"""Tensors in the mix of sizes that a transformer has, filled with random bits."""

from __future__ import annotations

from itertools import chain, cycle, repeat
from typing import Any

WIDTH, INNER, VOCABULARY = 4096, 11008, 32_000
LAYER = (*repeat((WIDTH, WIDTH), 4), *repeat((WIDTH, INNER), 3), (WIDTH,), (WIDTH,))
BYTES = 2  # bf16
STRIDE = 64 << 20  # elements that are summed at a time


def shapes(nbytes: int) -> list[tuple[int, ...]]:
    """Two embeddings and as many layers as fit into `nbytes` of bf16, the rest in one vector."""
    made: list[tuple[int, ...]] = []
    left = nbytes // BYTES
    for shape in chain(repeat((VOCABULARY, WIDTH), 2), cycle(LAYER)):
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if size > left:
            break
        made.append(shape)
        left -= size
    return [*made, (left,)] if left else made


def tensors_like_a_transformer(torch: Any, nbytes: int, seed: int) -> list[Any]:
    """`nbytes` of tensors on the first GPU."""
    generator = torch.Generator(device="cuda:0").manual_seed(seed)
    made = [torch.empty(shape, dtype=torch.bfloat16, device="cuda:0") for shape in shapes(nbytes)]
    for tensor in made:
        tensor.view(torch.int16).random_(generator=generator)
    return made


def checksum(torch: Any, tensors: list[Any]) -> int:
    """A number that depends on every bit and on the order of the tensors."""
    total = 0
    for number, tensor in enumerate(tensors):
        flat = tensor.view(torch.int16).flatten()
        parts = [int(part.to(torch.int64).sum()) for part in flat.split(STRIDE)]
        total = (total * 1_000_003 + sum(parts) + number) % (1 << 61)
    return total
