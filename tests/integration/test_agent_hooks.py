"""Commands to hooks, from the agent through Redis to a process and back."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.support.stage import AgentStage
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

A = random.Random(1).randbytes(20_000)

HOOKS = ({"name": "TorchOffload", "slices": [], "self": False, "residue": 0},)


def test_hooks_are_commanded_through_redis(agents: AgentStage) -> None:
    agents.agent(fallback="hooks")
    a, b = agents.run("a", hooks=HOOKS), agents.run("b")
    a.take("s")
    a.yield_()
    b.register("s")
    b.ask("s")
    offload = a.obey()
    b.wait_held()
    assert (offload["what"], offload["slice"]) == ("offload", "s")
    b.yield_()
    a.ask("s")
    reload = a.obey()
    a.wait_held()
    assert reload["what"] == "reload"
    assert int(reload["n"]) == a.fences["s"]
    assert a.again().moved


def test_hooks_that_fail_block_the_slice_for_others_only(agents: AgentStage) -> None:
    agents.agent(fallback="hooks")
    a, b = agents.run("a", hooks=HOOKS), agents.run("b")
    a.take("s")
    a.yield_()
    b.register("s")
    b.ask("s")
    a.obey("failed", "out of host memory")
    wait_until(lambda: "n1" in agents.slice().blocked)
    assert "out of host memory" in agents.slice().blocked["n1"]["reason"]
    a.ask("s")
    assert a.obey()["what"] == "reload"
    a.wait_held()
    a.yield_()
    a.obey()  # tried again
    b.wait_held()


def test_hooks_that_do_not_answer_are_passed_over(agents: AgentStage) -> None:
    agents.agent(fallback="hooks,cuda", hook_deadline="0.5")
    a, b = agents.run("a", hooks=HOOKS), agents.run("b")
    a.take("s")
    agents.write(A)
    a.yield_()
    b.take("s")
    assert agents.report()["saved"] == ["a"]
    b.yield_()
    a.ask("s")
    wait_until(lambda: a.renew(done=a.k - 1).commands[0]["what"] == "reload")
    a.obey()
    a.wait_held()
    assert agents.read(len(A)) == A


def test_one_process_with_hooks_on_two_slices_gets_its_commands_one_by_one(agents: AgentStage) -> None:
    agents.agent(slices={"s": "sim:d", "t": "sim:e"}, fallback="hooks")
    a, b = agents.run("a", hooks=HOOKS), agents.run("b")
    a.take("s", "t")
    a.yield_()
    b.register("s", "t")
    b.ask("s", "t")
    commands = [a.obey(), a.obey()]
    b.wait_held()
    assert {command["slice"] for command in commands} == {"s", "t"}
    assert len({command["n"] for command in commands}) == 2


# ---------------------------------------------------------------- with the client

JOB = """
import sys, slicelock

class Hook:
    def offload(self):
        print("offload", flush=True)
        return 3
    def reload(self):
        print("reload", flush=True)

if sys.argv[1] == "hooks":
    slicelock.register(Hook(), slices=["s"])
for line in sys.stdin:
    with slicelock.Slice("s").turn() as turn:
        print("held", turn.moved, flush=True)
"""


def test_the_clients_hooks_do_as_the_agent_says(agents: AgentStage) -> None:
    agents.agent(fallback="hooks")

    def job(name: str, kind: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", JOB, kind]
        env = {
            **os.environ,
            **agents.env(),
            "SLICELOCK_JOB": name,
            "SLICELOCK_RUN": name,
            "SLICELOCK_POLL": "0.2",
        }
        return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(one: subprocess.Popen[str]) -> str:
        assert one.stdin
        assert one.stdout
        one.stdin.write("go\n")
        one.stdin.flush()
        return one.stdout.readline().strip()

    with job("a", "hooks") as a, job("b", "none") as b:
        assert turn(a) == "held False"
        assert turn(b) == "held True"
        assert turn(a) == "offload"
        assert a.stdout
        assert [a.stdout.readline().strip() for _ in range(2)] == ["reload", "held True"]
        for one in (a, b):
            assert one.stdin
            one.stdin.close()
            assert one.wait(10) == 0
