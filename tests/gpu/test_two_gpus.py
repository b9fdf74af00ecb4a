"""Runs of two ranks on two GPUs with NCCL: hooks, the driver with the safe settings, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from slicelock_agent.nvml import Nvml

from slicelock.bench import duty
from slicelock.errors import SlicelockError
from tests.gpu.own_gpu import WORKER

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_grpo_ranks.py"
SAFE = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
OPTIONS = ("--steps=4", "--width=256", "--layers=2", "--batch=64", "--grade-seconds=1.0", "--slice=duty")


def count() -> int:
    try:
        return len(Nvml().all())
    except SlicelockError:
        return 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(count() < 2, reason="there are not two NVIDIA GPUs"),
    pytest.mark.skipif(bool(WORKER), reason="this worker has one GPU of its own; run this file without -n"),
]


class Ranks:
    """A run of two ranks under torchrun."""

    def __init__(self, run: str, seed: int, env: Mapping[str, str]) -> None:
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
        own = {"SLICELOCK_JOB": run, "SLICELOCK_RUN": run, "SLICELOCK_MEMBERS": "auto"}
        self._process = subprocess.Popen(
            [sys.executable, *launcher, str(EXAMPLE), *OPTIONS, f"--seed={seed}"],
            env={**env, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self) -> str:
        """What it has printed, after its end."""
        output, _ = self._process.communicate(timeout=240)
        print(output[-3000:])
        return output

    def digest(self) -> str:
        found = re.findall(r"optimizer state ([0-9a-f]{64})", self.said())
        assert found, "it did not finish"
        return found[0]


@pytest.mark.parametrize(("way", "settings"), [("hooks", {}), ("cuda", SAFE)])
def test_two_runs_of_two_ranks_learn_what_they_learn_alone(
    way: str, settings: Mapping[str, str], figures: Callable[..., None]
) -> None:
    with duty.stage("0,1", way) as env:
        both = {**env, **settings}
        alone = Ranks("alone", 1, {**both, "SLICELOCK_MODE": "off"}).digest()
        runs = [Ranks(run, 1, both) for run in ("a", "b")]
        assert [run.digest() for run in runs] == [alone, alone]
    figures(way=way, settings=dict(settings), identical=True)


def test_the_driver_is_not_asked_for_nccl_in_its_usual_settings(figures: Callable[..., None]) -> None:
    with duty.stage("0,1", "cuda") as env:
        plain = {name: value for name, value in env.items() if name not in SAFE} | {"NCCL_NVLS_ENABLE": "0"}
        said = Ranks("a", 1, plain).said()
    assert "NCCL_P2P_DISABLE=1" in said
    figures(refused=True)
