"""A whole agent that is killed and loses its state folder: the next one knows again what is on the devices,
from its own look at them and from what its predecessor has told Redis.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slicelock_agent.journal import Journal

from slicelock.identity import boot_id
from slicelock.local_agent import LocalAgent
from tests.support.fake_driver import GIB, VARIABLE
from tests.support.fake_driver import World as Gpus
from tests.support.gpu_rig import GPU, OTHER, ROOT, SIZE
from tests.support.stage import AgentStage, Run
from tests.support.stored import edit
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

A, B = random.Random(1).randbytes(20_000), random.Random(2).randbytes(30_000)
HOOKS: Any = ({"name": "TorchOffload", "slices": [], "self": False, "residue": 0},)


def commands(run: Run) -> Any:
    """What its hooks are told at present."""
    return run.renew(done=run.k - 1).commands


def lose_journal(agents: AgentStage) -> None:
    shutil.rmtree(agents.env()["SLICELOCK_STATE_DIR"])


# ---------------------------------------------------------------- simulated devices


def anew(agents: AgentStage, agent: LocalAgent, **facts: Any) -> LocalAgent:
    """Another agent, after this one was killed and its folder lost."""
    agents.kill(agent)
    lose_journal(agents)
    return agents.agent(**facts)


@pytest.mark.parametrize("holds", [False, True])
def test_what_is_loaded_is_evicted(agents: AgentStage, holds: bool) -> None:
    agent = agents.agent()
    a, b = agents.run("a"), agents.run("b")
    a.take("s")
    agents.write(A)
    if not holds:
        a.yield_()
    anew(agents, agent)
    b.register("s")
    b.ask("s")
    if holds:
        a.yield_()
    b.wait_held()
    assert agents.report()["saved"] == ["a"]
    b.yield_()
    a.take("s")
    assert agents.read(len(A)) == A


def test_what_is_loaded_is_evicted_by_its_hooks(agents: AgentStage) -> None:
    agent = agents.agent(fallback="hooks")
    a, b = agents.run("a", hooks=HOOKS), agents.run("b")
    a.take("s")
    a.yield_()
    anew(agents, agent, fallback="hooks")
    b.register("s")
    b.ask("s")
    assert a.obey()["what"] == "offload"
    b.wait_held()
    b.yield_()
    a.ask("s")
    assert a.obey()["what"] == "reload"
    a.wait_held()


def test_hooks_that_may_have_begun_to_offload_are_told_to_reload(agents: AgentStage) -> None:
    agent = agents.agent(fallback="hooks")
    a, b = agents.run("a", hooks=HOOKS), agents.run("b")
    a.take("s")
    a.yield_()
    b.register("s")
    b.ask("s")
    wait_until(lambda: commands(a), what="a command for its hooks")
    agents.kill(agent)
    lose_journal(agents)
    b.cancel()
    agents.agent(fallback="hooks")
    a.ask("s")
    wait_until(lambda: [one for one in commands(a) if one["what"] == "reload"], what="a reload")
    a.obey()
    a.wait_held()


def test_what_is_saved_comes_back(agents: AgentStage) -> None:
    agent = agents.agent()
    a, b = agents.run("a"), agents.run("b")
    b.take("s")
    agents.write(B)
    b.yield_()
    a.take("s")
    agents.write(A)
    a.yield_()
    anew(agents, agent)
    for run, content in ((b, B), (a, A)):
        run.take("s")
        assert agents.read(len(content)) == content
        run.yield_()


# ---------------------------------------------------------------- GPUs


class Node:
    """A node with a fake GPU, whose agent is a process of its own."""

    def __init__(self, agents: AgentStage) -> None:
        self.agents = agents
        self.gpus = Gpus(agents.folder / "world.json").create({GPU: SIZE, OTHER: SIZE})
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, **facts: str) -> None:
        """Start an agent and wait until it serves."""
        env = {**os.environ, **self.agents.env(**facts), VARIABLE: str(self.gpus.path)}
        command = [sys.executable, "-m", "tests.support.fake_gpu_agent", "--slice", "s=0"]
        self.agent = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE)
        assert self.agent.stdout is not None
        assert self.agent.stdout.readline()

    def kill(self) -> None:
        assert self.agent is not None
        assert self.agent.stdout is not None
        self.agent.kill()
        self.agent.wait()
        self.agent.stdout.close()

    def lose(self, **facts: str) -> None:
        """Kill the agent, lose its folder, start another one."""
        self.kill()
        lose_journal(self.agents)
        self.start(**facts)

    def has(self, run: Run, size: int = 30 * GIB) -> None:
        self.gpus.add(run.child.pid, {GPU: size})

    def state(self, run: Run) -> str:
        return self.gpus.state(run.child.pid)


@pytest.fixture
def node(agents: AgentStage) -> Iterator[Node]:
    made = Node(agents)
    yield made
    made.kill()


def run_on(node: Node, name: str, **facts: Any) -> Run:
    return node.agents.run(name, env={"SLICELOCK_RUN": name}, **facts)


def first_turn(node: Node, run: Run) -> None:
    run.take("s")
    node.has(run)
    run.yield_()


@pytest.mark.parametrize("holds", [False, True])
def test_what_is_loaded_on_a_gpu_is_evicted(node: Node, holds: bool) -> None:
    node.start()
    a, b = run_on(node, "a"), run_on(node, "b")
    a.take("s")
    node.has(a)
    if not holds:
        a.yield_()
    node.lose()
    b.register("s")
    b.ask("s")
    if holds:
        a.yield_()
    b.wait_held()
    assert node.state(a) == "checkpointed"
    b.yield_()
    a.take("s")
    assert node.state(a) == "running"


def test_what_is_loaded_on_a_gpu_comes_back_without_a_move(node: Node) -> None:
    node.start()
    a = run_on(node, "a")
    first_turn(node, a)
    node.lose()
    a.take("s")
    assert not node.gpus.log("save", "restore")


@pytest.mark.parametrize("state", ["locked", "checkpointed"])
def test_a_run_whose_save_was_under_way_goes_on(node: Node, state: str) -> None:
    node.start()
    a = run_on(node, "a")
    first_turn(node, a)
    node.kill()
    lose_journal(node.agents)
    node.gpus.change(a.child.pid, state=state)
    node.start()
    a.take("s")
    assert node.state(a) == "running"


def test_what_is_loaded_on_a_gpu_makes_room_for_what_is_saved(node: Node) -> None:
    node.start()
    a, b = run_on(node, "a"), run_on(node, "b")
    first_turn(node, b)
    first_turn(node, a)
    assert (node.state(a), node.state(b)) == ("running", "checkpointed")
    node.lose()
    b.take("s")
    assert (node.state(a), node.state(b)) == ("checkpointed", "running")
    b.yield_()
    a.take("s")
    assert (node.state(a), node.state(b)) == ("running", "checkpointed")


@pytest.mark.parametrize("kills", [1, 2])
def test_what_is_loaded_on_a_gpu_is_evicted_by_its_hooks(node: Node, kills: int) -> None:
    node.start(fallback="hooks")
    a, b = run_on(node, "a", hooks=HOOKS), run_on(node, "b", hooks=HOOKS)
    first_turn(node, a)
    node.kill()
    lose_journal(node.agents)
    if kills == 2:  # the next agent has made a journal, and not yet asked what its predecessor has told
        state, pool = Path(node.agents.env()["SLICELOCK_STATE_DIR"]), node.agents.world.keys.pool
        Journal(state / f"{pool}.n1.journal", boot_id()).close()
    node.start(fallback="hooks")
    b.register("s")
    b.ask("s")
    assert wait_until(lambda: commands(a), what="a command for its hooks")[0]["what"] == "offload"
    node.gpus.change(a.child.pid, mem={GPU: 0})
    a.obey()
    b.wait_held()
    b.yield_()
    a.ask("s")
    assert b.obey()["what"] == "offload"
    assert a.obey()["what"] == "reload"
    a.wait_held()


@pytest.mark.parametrize("fallback", ["hooks", "hooks,cuda"])
def test_a_run_that_has_died_meanwhile_is_in_nobodys_way(node: Node, fallback: str) -> None:
    node.start(fallback=fallback)
    a, b = run_on(node, "a", hooks=HOOKS), run_on(node, "b", hooks=HOOKS)
    first_turn(node, a)
    node.kill()
    lose_journal(node.agents)
    a.kill()
    node.start(fallback=fallback)
    b.take("s")
    wait_until(lambda: node.agents.report()["loaded"] == ["b"])


@pytest.mark.parametrize("fallback", ["hooks", "hooks,cuda"])
def test_what_a_predecessor_is_said_to_have_told_is_looked_at(node: Node, fallback: str) -> None:
    """Neither a run that has nothing here nor a fence that cannot be keeps anybody out."""
    node.start(fallback=fallback)
    b = run_on(node, "b", hooks=HOOKS)
    node.kill()
    lose_journal(node.agents)
    told: dict[str, Any] = {
        "run": "",
        "lane": "",
        "k": 0,
        "fence": 0,
        "top": 10**18,
        "doing": "",
        "saved": [],
    }
    tell(node, {**told, "loaded": ["ghost", "no name", 7]})
    node.start(fallback=fallback)
    b.take("s")


def test_no_lower_fence_is_let_in(node: Node) -> None:
    """As when Redis' clock was an hour ahead and is right again, and the slice's fence was lost with the
    journal.
    """
    node.start()
    a, b = run_on(node, "a"), run_on(node, "b")
    first_turn(node, a)
    report = node.agents.report()
    node.kill()
    lose_journal(node.agents)
    top = (int(time.time()) + 3600) * 1_024_000
    tell(node, {**report, "top": top})
    node.start()
    wait_until(lambda: int(node.agents.report()["top"]) == top)
    b.take("s")
    assert b.fences["s"] > top


def tell(node: Node, report: dict[str, Any]) -> None:
    """Have the node's last agent have told this of the slice."""
    world = node.agents.world
    edit(world.client, world.keys.node("n1"), **{"report:s": json.dumps(report)})
