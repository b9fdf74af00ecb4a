# pyright: basic, reportMissingImports=false
"""GRPO in PyTorch on a GPU that several jobs share: a small transformer learns to add, from nothing.

For each sum the model samples a group of answers (generate), a grader says which digits are right (reward),
and the model moves towards what did better than the rest of its group (train). While the grader works,
another job has the GPU: the lines marked [slicelock] are all it takes.

    SLICELOCK_MODE=off python torch_grpo.py       alone, without slicelock
    sh two_jobs_one_gpu.sh                        two of these on one GPU, taking turns

It runs on a CPU as well. PyTorch is told to be deterministic, so that losses can be compared to the last bit
whoever else takes turns; `slicelock bench duty` does that on a GPU.
"""

from __future__ import annotations

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it matrix products differ between runs

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable

try:
    import torch
except ImportError as missing:
    sys.exit(f"This example needs PyTorch ({missing}): pip install torch.")
import torch.nn.functional as F
from torch import Tensor, nn

import slicelock

PLUS, EQUALS, TOKENS = 10, 11, 12  # the ten digits stand for themselves
GROUP, CLIP, ENTROPY = 16, 0.2, 0.01  # answers for each sum; how far a step may go; what keeps answers varied

Tell = Callable[..., None]


def train(options: argparse.Namespace, tell: Tell) -> None:
    """The whole job. What slicelock adds is marked."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    model = Adder(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0.0)
    trainers = slicelock.Slice(options.slice)  # [slicelock] what is shared
    if device.type == "cuda":  # [slicelock] what to move off the GPU while others have it
        slicelock.register(slicelock.hooks.TorchOffload(model, optimizer))

    @slicelock.away(phase="reward")  # [slicelock] while this function runs, others have their turn
    def grade(step: int, answers: Tensor, truth: Tensor) -> Tensor:
        """1 for each right digit of each answer, else 0."""
        tell("reward", step=step)
        time.sleep(
            options.grade_seconds
        )  # a sandbox or a judge elsewhere: it takes time, but no core of ours
        rewards = (answers == truth[:, None]).float()
        tell("wait", step=step)
        return rewards

    tell("wait", step=0, steps=options.steps, device=device.type)
    with trainers.turn(phase="train"):  # [slicelock] begins when the GPU is ours
        model.to(device)
        noise = torch.Generator(device).manual_seed(options.seed)
        tell("step", step=0, reward=0.0, loss=0.0, accuracy=accuracy(model, options))
        for step in range(1, options.steps + 1):
            prompts, truth = sums(options.batch, options.digits, seed=options.seed * 1_000_003 + step)
            tell("generate", step=step)
            answers, logp = generate(model, prompts, options, noise)
            tell("generated", step=step)
            rewards = grade(step, answers, truth)
            tell("train", step=step)
            batch = (prompts, answers, logp, advantages(rewards))
            loss = learn(model, optimizer, options.epochs, batch=batch)
            right = accuracy(model, options)
            tell("step", step=step, reward=float(rewards.mean()), loss=loss, accuracy=right)
        tell("end", accuracy=accuracy(model, options), digest=digest(model, optimizer))


def generate(
    model: Adder, prompts: Tensor, options: argparse.Namespace, noise: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A group of answers for each prompt, and the logarithm of each digit's chance.

    Both are in host memory, as is all that is needed after a pause but the model and the optimizer.
    """
    tokens = prompts.to(model.device).repeat_interleave(GROUP, dim=0)
    chances = []
    with torch.no_grad():
        for _ in range(options.digits + 1):
            logits = model(tokens)[:, -1]
            uniform = torch.rand(logits.shape, generator=noise, device=logits.device)
            digit = (logits / options.temperature - uniform.log().neg().log()).argmax(dim=1, keepdim=True)
            chances.append(logits.log_softmax(dim=1).gather(1, digit))
            tokens = torch.cat([tokens, digit], dim=1)
    shape = (len(prompts), GROUP, options.digits + 1)
    return tokens[:, prompts.shape[1] :].reshape(shape).cpu(), torch.cat(chances, dim=1).reshape(shape).cpu()


def advantages(rewards: Tensor) -> Tensor:
    """How much better each digit did than the same one of the group's other answers: the G and R of GRPO."""
    spread = rewards.std(dim=1, keepdim=True)
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-4)


def learn(
    model: Adder,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    *,
    batch: tuple[Tensor, Tensor, Tensor, Tensor],
) -> float:
    """Steps towards the digits with an advantage, away from the others, within the clip; the last loss."""
    prompts, answers, old_logp, advantage = (one.to(model.device) for one in batch)
    prompts, chosen = prompts.repeat_interleave(GROUP, dim=0), answers.flatten(0, 1)
    inputs, length = torch.cat([prompts, chosen], dim=1)[:, :-1], chosen.shape[1]
    loss = torch.zeros(())
    for _ in range(epochs):
        logits = model(inputs)[:, -length:]
        every = logits.log_softmax(dim=2)
        logp = -F.cross_entropy(logits.flatten(0, 1), chosen.flatten(), reduction="none")
        ratio = (logp - old_logp.flatten()).exp()
        pull = advantage.flatten()
        gain = torch.minimum(ratio * pull, ratio.clamp(1 - CLIP, 1 + CLIP) * pull).mean()
        entropy = -(every.exp() * every).sum(dim=2).mean()
        loss = -gain - ENTROPY * entropy
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)  # so that no gradient has to be moved
    return loss.item()


class Adder(nn.Module):
    """A transformer that says, after each token, how likely each next one is."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, length = options.width, 3 * options.digits + 3
        self.token, self.place = nn.Embedding(TOKENS, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, options.heads) for _ in range(options.layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, tokens: Tensor) -> Tensor:
        value = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        for layer in self.layers:
            value = layer(value)
        return self.head(self.norm(value))


class Layer(nn.Module):
    """Attention to the tokens before, then a little network for each token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.look, self.bring = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, value: Tensor) -> Tensor:
        parts = self.look(self.norms[0](value)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, content = parts.unbind(0)
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=value.device).triu(1)
        seen = scores.masked_fill(later, float("-inf")).softmax(dim=3) @ content
        value = value + self.bring(seen.transpose(1, 2).flatten(2))
        return value + self.think(self.norms[1](value))


def sums(count: int, digits: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random sums as tokens (`7 3 + 5 1 =`) and their results. The ones come first, as one adds by hand."""
    a, b = torch.randint(10**digits, (2, count), generator=torch.Generator().manual_seed(seed))
    plus, equals = torch.full((count, 1), PLUS), torch.full((count, 1), EQUALS)
    prompts = torch.cat([spelled(a, digits), plus, spelled(b, digits), equals], dim=1)
    return prompts, spelled(a + b, digits + 1)


def spelled(numbers: Tensor, digits: int) -> Tensor:
    """The numbers' digits, the ones first."""
    return torch.stack([numbers // 10**place % 10 for place in range(digits)], dim=1)


def accuracy(model: Adder, options: argparse.Namespace) -> float:
    """The share of 512 other sums that the model gets right, when it says what it finds likeliest."""
    prompts, truth = sums(512, options.digits, seed=0)
    tokens = prompts.to(model.device)
    with torch.no_grad():
        for _ in range(options.digits + 1):
            tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(dim=1, keepdim=True)], dim=1)
    return (tokens[:, prompts.shape[1] :].cpu() == truth).all(dim=1).float().mean().item()


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A hash of weights and optimizer state: the same only if every bit is."""
    moments = [one for state in optimizer.state.values() for one in state.values()]
    told = hashlib.sha256()
    for tensor in [*model.parameters(), *moments]:
        told.update(tensor.detach().cpu().numpy().tobytes())
    return told.hexdigest()


def tell_people(event: str, **facts: object) -> None:
    match event:
        case "step":
            line = "step {step:3}   reward {reward:4.2f}   loss {loss:+.6f}   accuracy {accuracy:4.2f}"
            print(line.format(**facts), flush=True)
        case "end":
            print(f"weights and optimizer state {facts['digest']}")
        case _:
            pass


def tell_programs(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **facts}), flush=True)


def arguments(description: str | None = __doc__) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(description or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--slice", default="trainers", help="the slice to take turns on")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same weights")
    parser.add_argument("--steps", type=int, default=40, help="how often to generate, grade and train")
    parser.add_argument("--batch", type=int, default=100, help="sums in each step")
    parser.add_argument(
        "--epochs", type=int, default=6, help="how often each step's answers are learned from"
    )
    parser.add_argument("--digits", type=int, default=1, help="of each number")
    parser.add_argument("--width", type=int, default=128, help="of the transformer")
    parser.add_argument("--layers", type=int, default=1, help="of the transformer")
    parser.add_argument("--heads", type=int, default=4, help="of each layer")
    parser.add_argument("--rate", type=float, default=2e-3, help="how fast it learns")
    parser.add_argument("--temperature", type=float, default=1.0, help="how varied the answers are")
    parser.add_argument("--grade-seconds", type=float, default=0.2, help="how long the grader takes")
    parser.add_argument("--events", action="store_true", help="print JSON lines instead of text")
    return parser.parse_args()


def teller(options: argparse.Namespace) -> Tell:
    return tell_programs if options.events else tell_people


if __name__ == "__main__":
    try:
        train(options := arguments(), teller(options))
    except slicelock.SlicelockError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
