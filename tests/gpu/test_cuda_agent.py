"""The driver's checkpoint on a real GPU: agent, helpers, Redis and PyTorch jobs as users run them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.gpu.own_gpu import users
from tests.gpu.stage import Stage
from tests.support.wait import wait_until


def test_two_jobs_share_a_gpu_without_hooks(stage: Stage) -> None:
    stage.serve()
    a, b = stage.start(("a", 8), ("b", 8))
    told = [(one.run, one.turn()) for one in (a, b, a, b, a)]
    for run, facts in told:
        print(run, facts)
    sums = {run: [facts["checksum"] for one, facts in told if one == run] for run in "ab"}
    assert sums["a"][:2] == sums["b"]
    assert sums["a"][0] != sums["a"][1]
    assert users() & {a.pid, b.pid} == {a.pid}


def test_a_foreign_process_keeps_a_run_saved_until_it_leaves(stage: Stage) -> None:
    stage.serve()
    a, b = stage.start(("a", 8), ("b", 1))
    first = a.turn()
    b.turn()
    command = (
        "import torch, time; x = torch.zeros(100 << 28, device='cuda'); print(1, flush=True); time.sleep(99)"
    )
    hog = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE)
    assert hog.stdout is not None
    hog.stdout.readline()
    a.say("turn")
    assert stage.agent is not None
    wait_until(lambda: f"process {hog.pid}" in stage.agent.log(), 20, "the foreign process is named")
    hog.kill()
    hog.communicate()
    assert a.told()["k"] == 2
    assert first["k"] == 1


def test_nothing_of_a_run_with_hooks_stays_where_that_is_asked_for(stage: Stage) -> None:
    stage.serve(SLICELOCK_ZERO_RESIDUE="1")
    a, b, other = stage.start(("a", 8, "hook"), ("b", 1), ("c", 8))
    sums = [a.turn()["checksum"], a.turn()["checksum"]]
    b.turn()
    assert a.pid not in users()
    last = a.turn()
    print(last)
    assert [*sums, last["checksum"]] == [other.turn()["checksum"] for _ in range(3)]


def test_several_processes_without_the_safe_settings_are_refused_at_once(stage: Stage) -> None:
    stage.serve()
    stage.job("a", 0.25, SLICELOCK_MEMBERS="2", SLICELOCK_MEMBER="0").say("turn")
    stage.job("a", 0.25, SLICELOCK_MEMBERS="2", SLICELOCK_MEMBER="1").say("turn")
    assert stage.agent is not None
    wait_until(lambda: "NCCL_P2P_DISABLE=1" in stage.agent.log(), 20)


@pytest.mark.parametrize("how", ["touch", "freeze"])
def test_a_run_that_froze_itself_gets_a_turn_of_the_agents(stage: Stage, how: str) -> None:
    stage.serve()
    a, b = stage.start(("a", 2), ("b", 1))
    a.turn()
    b.turn()
    a.say(how)
    assert a.told()["touched"]
    assert b.turn()["k"] == 2
    assert a.turn()["k"] == 2
