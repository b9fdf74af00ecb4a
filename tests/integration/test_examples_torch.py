"""The PyTorch examples as users start them, on the CPU. Skipped without PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from slicelock.bench import duty

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--steps=3", "--batch=16", "--width=32", "--grade-seconds=0.1")
ONE_CORE = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
    pytest.mark.slow,
]


def run(*command: str, **variables: str) -> str:
    """What a command prints; it must succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLICELOCK_")}
    env = {**kept, **ONE_CORE, "PYTHON": sys.executable, **variables}
    done = subprocess.run(
        command, env=env, cwd=EXAMPLES, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digests(output: str) -> list[str]:
    return re.findall(r"optimizer state ([0-9a-f]{64})", output)


def test_the_model_learns_to_add() -> None:
    told = run(sys.executable, "torch_grpo.py", "--steps=16", "--grade-seconds=0", SLICELOCK_MODE="off")
    accuracies = [float(one) for one in re.findall(r"accuracy (\d\.\d\d)", told)]
    assert accuracies[0] < 0.1
    assert max(accuracies) > 0.25


def test_two_jobs_in_turns_end_as_they_do_alone() -> None:
    alone = [
        run(sys.executable, "torch_grpo.py", f"--seed={seed}", *SMALL, SLICELOCK_MODE="off")
        for seed in (1, 2)
    ]
    together = run("sh", "two_jobs_one_gpu.sh", "sim:0", *SMALL)
    assert sorted(digests(together)) == sorted(digests(alone[0]) + digests(alone[1]))


def test_two_ranks_are_members_of_one_run() -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    alone = run(*launcher, "torch_grpo_ranks.py", *SMALL, SLICELOCK_MODE="off")
    with duty.stage("sim:0", "hooks") as env:
        pool = {name: env[name] for name in ("SLICELOCK_REDIS_URL", "SLICELOCK_POOL")}
        own = {**pool, "SLICELOCK_JOB": "ranks", "SLICELOCK_MEMBERS": "auto"}
        together = run(*launcher, "torch_grpo_ranks.py", f"--slice={duty.SLICE}", *SMALL, **own)
    assert digests(together) == digests(alone) != []


def test_a_loop_that_is_not_ours_learns() -> None:
    told = run(sys.executable, "foreign_loop_away.py", SLICELOCK_MODE="off")
    rewards = [float(one) for one in re.findall(r"reward (\d\.\d\d)", told)]
    assert rewards[0] < 0.4
    assert rewards[-1] > 0.8


def test_the_duty_bench_runs_without_a_gpu_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setitem(duty.BUSY_S, "hooks", 0.1)
    figures = duty.measure(lambda line: None, 3, "hooks", "sim:0", ("--width=32", "--batch=16"))
    assert figures.work.reproducible
    assert figures.identical, figures.as_json()
    assert figures.shared.jobs[0].device == "cpu"
