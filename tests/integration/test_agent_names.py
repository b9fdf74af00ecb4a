"""One node, one agent: other machines of the same name, other agents of the same machine, a machine that has
started anew."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.identity import boot_id
from tests.support.stage import ROOT, AgentStage
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

BOOTS = ("11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000")
READY = b"slicelock-agent ready: node n1 slices s\n"
OTHER = "Node n1 is served by another agent, on host "


@contextlib.contextmanager
def machine(folder: Path, host: str, boot: str, env: Mapping[str, str]) -> Generator[subprocess.Popen[bytes]]:
    """An agent that believes to run on another machine: it sees another host name and another boot id."""
    told = folder / f"boot-{boot[:4]}"
    told.write_text(boot + "\n")
    script = (
        f"hostname {host} && mount --bind {told} /proc/sys/kernel/random/boot_id && "
        f"exec {sys.executable} -m slicelock_agent --slice s=sim:d"
    )
    agent = subprocess.Popen(
        ["unshare", "--mount", "--uts", "sh", "-c", script],
        env={**os.environ, **env},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with agent:
        try:
            yield agent
        finally:
            agent.kill()


def ended(agent: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    """Its exit code and what it said, once it has ended by itself."""
    _, said = agent.communicate(timeout=20)
    return agent.returncode, [line for line in said.decode().splitlines() if "error:" in line]


def is_ready(agent: subprocess.Popen[bytes]) -> bool:
    """Wait until it serves; False when it ends instead, or waits for as long as a silence of a minute."""
    assert agent.stdout is not None
    return bool(select.select([agent.stdout], [], [], 30)[0]) and agent.stdout.readline() == READY


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another machine")


@as_root
def test_another_machine_of_the_same_name_is_refused(agents: AgentStage, tmp_path: Path) -> None:
    """As long as the first is heard; no job is harmed. When the first has fallen silent, it may serve."""
    first = agents.agent()
    a = agents.run("a")
    a.take("s")
    elsewhere = {"state_dir": str(tmp_path / "two/state"), "sim_dir": str(tmp_path / "two/sim")}
    env = agents.env(**elsewhere)
    before = agents.slice()
    with machine(tmp_path, "gpu-7", BOOTS[0], env) as second:
        code, said = ended(second)
    assert (code, len(said)) == (3, 1), said
    assert f"{OTHER}{os.uname().nodename} (boot {boot_id()[:8]}, journal " in said[0]
    assert "this one is on host gpu-7 (boot 11111111, journal " in said[0]
    assert "SLICELOCK_NODE" in said[0]
    assert not (tmp_path / "two/state").exists()
    after = agents.slice()
    assert (after.state, after.fence, after.nodes, after.blocked) == ("held", before.fence, before.nodes, {})
    assert a.again().outcome == "HELD"
    a.yield_()
    agents.kill(first)
    with machine(tmp_path, "gpu-7", BOOTS[0], env) as second:
        assert is_ready(second)


@as_root
@pytest.mark.parametrize(
    ("host", "boot"), [("gpu-7", BOOTS[1]), ("gpu-8", BOOTS[0])], ids=["started anew", "a new container"]
)
def test_the_same_journal_serves_again_without_waiting_for_a_silence(
    agents: AgentStage, tmp_path: Path, host: str, boot: str
) -> None:
    env = agents.env(silent="60")
    with machine(tmp_path, "gpu-7", BOOTS[0], env) as first:
        assert is_ready(first)
        first.send_signal(signal.SIGKILL)
        first.wait()
        with machine(tmp_path, host, boot, env) as again:
            assert is_ready(again)
            agent = agents.world.picture().nodes[0].agent
            assert agent.startswith(boot.replace("-", "")) and agent.endswith(f"@{host}")


def test_a_clean_stop_lets_any_agent_of_the_node_serve_at_once(agents: AgentStage, tmp_path: Path) -> None:
    """It leaves a job's turn alone: only who the node's agent is is forgotten."""
    a = agents.run("a")
    with agents.start_agent("--slice", "s=sim:d", silent="60") as first:
        assert is_ready(first)
        a.take("s")
        before, fence = agents.slice(), agents.slice().fence
        first.terminate()
        assert first.wait(20) == 0
        assert agents.world.picture().nodes[0].agent == ""
        assert (agents.slice().state, agents.slice().fence, agents.slice().blocked) == ("held", fence, {})
        assert agents.slice().nodes == before.nodes
        assert a.again().outcome == "HELD"
        a.yield_()
    with agents.start_agent("--slice", "s=sim:d", silent="60", state_dir=str(tmp_path / "two")) as second:
        assert is_ready(second)
        second.kill()


def test_a_copy_of_a_journal_is_another_one(agents: AgentStage, tmp_path: Path) -> None:
    """On the same machine, since its boot; no two agents serve."""
    agents.agent()
    shutil.copytree(agents.folder / "n1/state", tmp_path / "clone")
    code, said = agents.try_agent(
        "--slice", "s=sim:d", state_dir=str(tmp_path / "clone"), sim_dir=str(tmp_path / "sim")
    )
    assert code == 3, said
    assert OTHER in said.splitlines()[-1]


def test_who_waits_for_a_silence_waits_for_redis_too(
    own_agents: tuple[AgentStage, EmbeddedServer], tmp_path: Path
) -> None:
    agents, server = own_agents
    agents.kill(agents.agent(silent="5"))
    with agents.start_agent("--slice", "s=sim:d", state_dir=str(tmp_path / "two")) as second:
        assert second.stderr is not None
        assert b"waiting" in second.stderr.readline()
        server.stop()
        assert b"Waiting for it." in second.stderr.readline()
        server.start()
        assert is_ready(second)
        second.kill()


def test_another_agent_of_the_same_machine_is_refused(agents: AgentStage, tmp_path: Path) -> None:
    """With a journal of its own it could not know otherwise; one node's word is one agent's."""
    agents.agent()
    code, said = agents.try_agent("--slice", "t=sim:e", state_dir=str(tmp_path / "two"))
    assert code == 3
    assert OTHER in said.splitlines()[-1]
    assert [one.name for one in agents.world.picture().slices] == ["s"]
    assert not (tmp_path / "two").exists()


def test_an_agent_whose_name_was_taken_meanwhile_says_so_and_serves_again(
    agents: AgentStage, tmp_path: Path
) -> None:
    """It was silent for too long. It does nothing until the other one is gone; its job's turn goes on."""
    first = agents.agent()
    a = agents.run("a")
    a.take("s")
    os.kill(first.process.pid, signal.SIGSTOP)
    wait_until(lambda: a.again() and agents.world.picture().nodes[0].silent)
    elsewhere = {"state_dir": str(tmp_path / "two/state"), "sim_dir": str(tmp_path / "two/sim")}
    second = agents.start_agent("--slice", "s=sim:d", **elsewhere)
    with second:
        assert is_ready(second)
        os.kill(first.process.pid, signal.SIGCONT)
        wait_until(lambda: OTHER in first.log())
        assert a.again().outcome == "HELD"
        second.kill()
    wait_until(lambda: agents.report().get("run") == "a" and not agents.slice().blocked)
    assert first.log().count(OTHER) == 1
    assert a.again().outcome == "HELD"
    a.yield_()
