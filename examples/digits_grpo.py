"""Reinforcement learning on an accelerator that several jobs share: a network learns to read digits by GRPO.

For each image the network samples a group of answers (generate), a grader outside says which are right
(reward), and the network moves towards the answers that did better than their group (train). While the
grader works, another job has the accelerator: the three lines marked [slicelock] are all it takes.

    SLICELOCK_MODE=off python digits_grpo.py      alone, without slicelock
    slicelock demo                                several of these, taking turns

The accelerator is simulated: weights and optimizer state live in its memory. The lines with `device` stand
for what a framework does by itself on a real one.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # results must not depend on how many cores are free

import argparse
import hashlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import slicelock
from slicelock.sim import SimDevice

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]
Ask = Callable[[Whole, Whole], Floats]

LAYERS = (64, 512, 512, 10)
GROUP, CLIP = 16, 0.2  # answers for each image; how far a step may move an answer's chance
RATE, DECAY = 5e-5, (0.9, 0.999)  # Adam's


def train(options: argparse.Namespace, tell: Callable[..., None]) -> None:
    """The whole job. What slicelock adds is marked."""
    images, labels, test_images, test_labels = digits()
    device = SimDevice.attach()
    accelerator = slicelock.Slice(options.slice)  # [slicelock] what is shared

    @slicelock.away(phase="reward")  # [slicelock] while this function runs, others have their turn
    def grade(ask: Ask, step: int, answers: Whole, truth: Whole) -> Floats:
        tell("reward", step=step)
        rewards = ask(answers, truth)
        tell("wait", step=step)
        return rewards

    with grader(options.grade_seconds) as ask:
        tell("wait", step=0, steps=options.steps)
        with accelerator.turn(phase="train") as turn:  # [slicelock] begins when the accelerator is ours
            with device.use(turn):
                policy = Policy(device, options.seed)
                tell("step", step=0, reward=0.0, accuracy=policy.accuracy(test_images, test_labels))
            for step in range(1, options.steps + 1):
                rng = np.random.default_rng([options.seed, step])
                batch = rng.permutation(len(images))[: options.batch]
                tell("generate", step=step)
                with device.use(turn):
                    answers, logp = policy.sample(images[batch], rng)
                rewards = grade(ask, step, answers, labels[batch])
                tell("train", step=step)
                with device.use(turn):
                    for part in minibatches(rng, len(batch), options):
                        policy.learn(
                            images[batch[part]], answers[part], logp[part], advantages(rewards[part])
                        )
                    accuracy = policy.accuracy(test_images, test_labels)
                tell("step", step=step, reward=float(rewards.mean()), accuracy=accuracy)
            with device.use(turn):
                tell("end", accuracy=policy.accuracy(test_images, test_labels), digest=policy.digest())


def minibatches(rng: np.random.Generator, size: int, options: argparse.Namespace) -> Generator[Whole]:
    """The batch's indices, in random parts, as often as there are epochs."""
    for _ in range(options.epochs):
        yield from np.array_split(rng.permutation(size), options.parts)


def advantages(rewards: Floats) -> Floats:
    """How much better each answer did than its group: the G and R of GRPO."""
    spread = rewards.std(axis=1, keepdims=True)
    return (rewards - rewards.mean(axis=1, keepdims=True)) / (spread + 1e-4)


class Policy:
    """A network that gives each digit a chance. Its weights and Adam's two moments are in device memory."""

    def __init__(self, device: SimDevice, seed: int) -> None:
        shapes = [(inputs + 1, outputs) for inputs, outputs in pairwise(LAYERS)]
        size = sum(rows * columns for rows, columns in shapes)
        self.weights, self.mean, self.square = (device.array(size) for _ in range(3))
        self.mean[:] = self.square[:] = 0
        self.updates, self.layers = 0, list[Floats]()
        rng, start = np.random.default_rng(seed), 0
        for rows, columns in shapes:
            layer = self.weights[start : start + rows * columns].reshape(rows, columns)
            layer[:] = rng.standard_normal((rows, columns)) / np.sqrt(rows)
            layer[-1] = 0  # the last row is the bias
            self.layers.append(layer)
            start += rows * columns

    def forward(self, images: Floats) -> tuple[list[Floats], Floats]:
        """The input of every layer, and the logarithm of each digit's chance."""
        inputs, value = list[Floats](), images
        for layer in self.layers:
            inputs.append(np.maximum(value, 0))
            value = inputs[-1] @ layer[:-1] + layer[-1]
        value = value - value.max(axis=1, keepdims=True)
        return inputs, value - np.log(np.exp(value).sum(axis=1, keepdims=True))

    def sample(self, images: Floats, rng: np.random.Generator) -> tuple[Whole, Floats]:
        """A group of answers for each image, and the logarithm of each answer's chance."""
        _, logp = self.forward(images)
        noise = rng.gumbel(size=(len(images), GROUP, logp.shape[1])).astype(np.float32)
        answers = (logp[:, None, :] + noise).argmax(axis=2)
        return answers, np.take_along_axis(logp, answers, axis=1)

    def learn(self, images: Floats, answers: Whole, old_logp: Floats, advantage: Floats) -> None:
        """One step towards the answers with an advantage, away from the others, within the clip."""
        inputs, logp = self.forward(images)
        ratio = np.exp(np.take_along_axis(logp, answers, axis=1) - old_logp)
        clipped = np.where(advantage > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
        pull = np.where(clipped, 0, ratio * advantage) / np.float32(answers.size)
        chosen = np.eye(logp.shape[1], dtype=np.float32)[answers]
        pulls = np.einsum("ig,igd->id", pull, chosen)
        self.adam(self.gradient(inputs, np.exp(logp) * pull.sum(axis=1, keepdims=True) - pulls))

    def gradient(self, inputs: list[Floats], slope: Floats) -> Floats:
        """The loss's slope in every weight, from its slope in what the last layer gives."""
        slopes = list[Floats]()
        for layer, value in zip(reversed(self.layers), reversed(inputs), strict=True):
            slopes += [slope.sum(axis=0), (value.T @ slope).ravel()]
            slope = (slope @ layer[:-1].T) * (value > 0)
        return np.concatenate(slopes[::-1])

    def adam(self, gradient: Floats) -> None:
        """Move the weights down the gradient, by Adam's rule."""
        self.updates += 1
        self.mean += (1 - DECAY[0]) * (gradient - self.mean)
        self.square += (1 - DECAY[1]) * (gradient**2 - self.square)
        mean, square = (
            m / (1 - d**self.updates) for m, d in zip((self.mean, self.square), DECAY, strict=True)
        )
        self.weights -= RATE * mean / (np.sqrt(square) + 1e-8)

    def accuracy(self, images: Floats, labels: Whole) -> float:
        """The share of images whose likeliest digit is the right one."""
        return float((self.forward(images)[1].argmax(axis=1) == labels).mean())

    def digest(self) -> str:
        """A hash of weights and optimizer state: the same only if every bit is."""
        state = (self.weights, self.mean, self.square)
        return hashlib.sha256(b"".join(part.tobytes() for part in state)).hexdigest()


def digits() -> tuple[Floats, Whole, Floats, Whole]:
    """1,500 images of handwritten digits with their labels to learn from, and 297 to test with."""
    from sklearn.datasets import load_digits

    data = cast(Any, load_digits())
    order = np.random.default_rng(0).permutation(len(data.data))
    images: Floats = (data.data[order] / 16).astype(np.float32)
    labels: Whole = data.target[order].astype(np.int64)
    return images[:1500], labels[:1500], images[1500:], labels[1500:]


@contextmanager
def grader(seconds: float) -> Generator[Ask]:
    """A grader in a process of its own, which takes `seconds` for each batch; yields how to ask it."""
    command = [sys.executable, __file__, "--be-grader", f"--grade-seconds={seconds}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0) as process:
        questions, replies = process.stdin, process.stdout
        assert questions and replies
        replies.readline()

        def ask(answers: Whole, truth: Whole) -> Floats:
            print(json.dumps([answers.tolist(), truth.tolist()]), file=questions, flush=True)
            return np.array(json.loads(replies.readline()), np.float32)

        yield ask


def be_grader(seconds: float) -> None:
    """Say which answers are right, as a slow service would: after `seconds`, without using a core."""
    print("ready", flush=True)
    for line in sys.stdin:
        job_is_gone, _, _ = select.select([sys.stdin], [], [], seconds)
        if job_is_gone:
            return
        answers, truth = json.loads(line)
        rewards = [[int(one == right) for one in group] for group, right in zip(answers, truth, strict=True)]
        print(json.dumps(rewards), flush=True)


def tell_people(event: str, **facts: object) -> None:
    match event:
        case "step":
            print(
                "step {step:3}   reward {reward:4.2f}   accuracy {accuracy:4.2f}".format(**facts), flush=True
            )
        case "end":
            print(f"weights and optimizer state {facts['digest']}")
        case _:
            pass


def tell_programs(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **facts}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--slice", default="accelerator", help="the slice to take turns on (default: accelerator)"
    )
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same weights")
    parser.add_argument("--steps", type=int, default=24, help="how often to generate, grade and train")
    parser.add_argument("--batch", type=int, default=1024, help="images in each step")
    parser.add_argument(
        "--epochs", type=int, default=4, help="how often each step's answers are learned from"
    )
    parser.add_argument("--parts", type=int, default=4, help="updates in each epoch")
    parser.add_argument(
        "--grade-seconds", type=float, default=0.2, help="how long the grader takes for a batch"
    )
    parser.add_argument("--events", action="store_true", help="print JSON lines instead of text")
    parser.add_argument("--be-grader", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be_grader:
        be_grader(options.grade_seconds)
    else:
        train(options, tell_programs if options.events else tell_people)


if __name__ == "__main__":
    try:
        main()
    except slicelock.SlicelockError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
