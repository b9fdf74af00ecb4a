# pyright: basic, reportMissingImports=false
"""slicelock inside a training loop that is not yours: `away` around the reward function is all.

`FrameworkTrainer` stands for a trainer that you cannot take apart (TRL's, verl's, your colleague's): it calls
your reward function deep inside its loop. The decorator finds the turn around it, gives the GPU up while the
function runs, and has it back before the trainer goes on.

    SLICELOCK_MODE=off python foreign_loop_away.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence

try:
    import torch
except ImportError as missing:
    sys.exit(f"This example needs PyTorch ({missing}): pip install torch.")
from torch import nn

import slicelock

Reward = Callable[[Sequence[str], Sequence[str]], list[float]]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


# ------------------------------------------------------------ yours: three lines more than without slicelock


@slicelock.away(phase="reward")  # [slicelock]
def vowels(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Each completion's share of vowels, from a slow service."""
    time.sleep(0.2)
    return [sum(letter in "aeiou" for letter in text) / len(text) for text in completions]


def main() -> None:
    trainer = FrameworkTrainer(reward=vowels)
    if trainer.device.type == "cuda":
        slicelock.register(slicelock.hooks.TorchOffload(trainer.model, trainer.optimizer))  # [slicelock]
    with slicelock.Slice("trainers").turn(phase="train"):  # [slicelock]
        for step, reward in enumerate(trainer.train(steps=20), 1):
            print(f"step {step:2}   reward {reward:4.2f}", flush=True)


# ------------------------------------------------------------ the framework's: knows nothing of slicelock


class FrameworkTrainer:
    """Learns which letters to write, by whatever the reward function says about them."""

    def __init__(self, reward: Reward, group: int = 64, length: int = 8) -> None:
        torch.manual_seed(1)
        self.reward, self.group, self.length = reward, group, length
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = nn.Sequential(nn.Embedding(1, 64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 26))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def train(self, steps: int) -> Iterator[float]:
        """The mean reward of each step."""
        self.model.to(self.device)
        for _ in range(steps):
            start = torch.zeros(self.group * self.length, dtype=torch.long, device=self.device)
            with torch.no_grad():
                letters = torch.multinomial(self.model(start).softmax(dim=1), 1).view(self.group, -1).cpu()
            texts = ["".join(LETTERS[index] for index in row) for row in letters.tolist()]
            rewards = torch.tensor(self.reward([""] * self.group, texts))
            advantage = ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).to(self.device)
            logp = self.model(start).log_softmax(dim=1).view(self.group, self.length, -1)
            chosen = logp.gather(2, letters.to(self.device)[..., None]).squeeze(2)
            (-(advantage[:, None] * chosen).mean()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            yield float(rewards.mean())


if __name__ == "__main__":
    try:
        main()
    except slicelock.SlicelockError as error:
        sys.exit(f"{error}")
