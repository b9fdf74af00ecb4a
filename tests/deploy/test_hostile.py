"""A client that means harm, with all rights of a client, against a real agent that runs as root.

Whatever it writes, the agent survives, touches no process that is not the client's, and serves the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from slicelock import scripts, wire
from slicelock.identity import ProcessIdentity
from slicelock.local_agent import LocalAgent
from tests.support.acl_server import Guarded
from tests.support.scripts import Scripts, connect
from tests.support.stage import AgentStage, Run
from tests.support.stored import edit, record
from tests.support.wait import wait_until

STATE = b"precious" * 100


@pytest.fixture
def stage(guarded: Guarded, tmp_path: Path) -> Iterator[AgentStage]:
    """Agents with the agent's rights; the runs, and the enemy, with a client's."""
    with connect(guarded.url("client")) as client, connect(guarded.url("operator")) as operator:
        Scripts(operator, "p", clock=False).run(wire.Declare("s", {"n1": ["sim:d"]}, {"fallback": "kill"}))
        made = AgentStage(Scripts(client, "p", clock=False), guarded.url("agent"), tmp_path)
        yield made
        made.close()


@pytest.fixture
def agent(stage: AgentStage) -> LocalAgent:
    return stage.agent()


@pytest.fixture
def victims() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Processes that nobody may touch."""
    started: list[subprocess.Popen[bytes]] = []

    def start(env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        command = ["sleep", "600"]
        started.append(subprocess.Popen(command, env={**os.environ, **(env or {})}, **options))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


def enemy(stage: AgentStage, run: str = "evil") -> Run:
    return stage.run(run)


def identity(pid: int) -> str:
    return str(ProcessIdentity.of(pid))


def claim(stage: AgentStage, run: str, *processes: str, job: str = "job-evil", hooks: Any = ()) -> None:
    """Register processes as a run's."""
    for process in processes:
        stage.world.scripts.call("register", wire.Register(run, job, process, 0, ("s",), list(hooks)).argv())


def serves(stage: AgentStage, agent: LocalAgent, name: str = "good") -> Run:
    """The agent is there, and an honest run gets its turn and keeps its state."""
    run = stage.run(f"{name}-{len(stage.runs)}")
    run.take("s", timeout=20)
    stage.write(STATE)
    assert agent.process.poll() is None
    assert stage.read(len(STATE)) == STATE
    return run


def evicted(stage: AgentStage, agent: LocalAgent, evil: Run) -> list[str]:
    """The enemy's run yields and is evicted by kill, as the slice allows. Why not, where it fails."""
    blocked: list[str] = []
    stage.write(STATE)
    evil.yield_()
    good = stage.run(f"good-{len(stage.runs)}")
    good.register("s")
    good.ask("s")
    wait_until(lambda: good.again().outcome == "HELD" or "n1" in stage.slice().blocked, 20)
    assert agent.process.poll() is None
    blocked.extend(why["reason"] for why in stage.slice().blocked.values())
    for one in (good, evil):
        one.kill()
    return blocked


def test_false_pids(
    stage: AgentStage, agent: LocalAgent, victims: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Of nobody, of init, of the agent, of its parent, of a thread, of an untagged bystander."""
    bystander, evil = victims(), enemy(stage)
    boot, space, _, start = evil.process.split(":")
    thread = next(int(one.name) for one in Path(f"/proc/{agent.process.pid}/task").iterdir())
    pids = [1, 2, 0, -1, 2**31, 2**63, 10**30, thread, agent.process.pid, os.getpid()]
    claim(stage, "evil", *[f"{boot}:{space}:{pid}:{start}" for pid in pids])
    claim(stage, "evil", *[identity(pid) for pid in (agent.process.pid, os.getpid(), bystander.pid)])
    evil.take("s")
    [reason] = evicted(stage, agent, evil)
    assert bystander.poll() is None
    assert "is not certain to be the run's" in reason


@pytest.mark.parametrize(
    "tag", [{"SLICELOCK_RUN": "victim"}, {"SLICELOCK_RUN": "victim", "SLICELOCK_JOB": "evil"}]
)
def test_another_jobs_process(
    stage: AgentStage, agent: LocalAgent, victims: Callable[..., subprocess.Popen[bytes]], tag: dict[str, str]
) -> None:
    victim, evil = victims(tag), enemy(stage)
    claim(stage, "evil", identity(victim.pid))
    evil.take("s")
    evicted(stage, agent, evil)
    assert victim.poll() is None
    wait_until(lambda: "started for another run" in agent.log())
    serves(stage, agent)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_users_process(stage: AgentStage, victims: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Even with the run's tag, a process of a user whom the agent may not touch is left alone."""
    agent = stage.agent(allow_uids=str(os.getuid()))
    victim = victims({"SLICELOCK_RUN": "evil", "SLICELOCK_JOB": "evil"}, user=12345)
    evil = enemy(stage)
    claim(stage, "evil", identity(victim.pid))
    evil.take("s")
    evicted(stage, agent, evil)
    assert victim.poll() is None
    wait_until(lambda: "of a user that this agent may not touch" in agent.log())
    serves(stage, agent)


def test_another_jobs_name(stage: AgentStage, agent: LocalAgent) -> None:
    """Under another job's name the enemy is a run of its own, and the other's process is not its process."""
    honest = stage.run("honest", {"SLICELOCK_RUN": "honest"})
    honest.take("s")
    stage.write(STATE)
    claim(stage, "evil", honest.process, job=honest.job)
    evil = enemy(stage)
    honest.yield_()
    evil.register("s")
    evil.ask("s")
    evil.wait_held()
    assert honest.child.wait(5) == -signal.SIGKILL  # as a process of its own run, since the slice allows kill
    evil.kill()
    serves(stage, agent)


HUGE = "x" * 300_000
BINARY = b"\xff\xfe\x00\x80".decode("latin-1")


@pytest.mark.parametrize("text", [HUGE, BINARY, '{"a":' * 500, "\n\r\n" * 10, "{evil}:*", "a b", "..", ""])
def test_huge_and_binary_fields(stage: AgentStage, agent: LocalAgent, text: str) -> None:
    """In every argument of every script that a client has; what the script refuses, it refuses as a whole."""
    evil = enemy(stage)
    evil.take("s")
    hook = {"name": text, "slices": [text], "self": text, "residue": text, "server": {"url": text}}
    commands: list[wire.ScriptCall] = [
        wire.Register("evil", text, evil.process, 0, ("s",), [hook]),
        wire.Register("evil", "evil", text, 0, (text,), [text]),
        wire.Renew("evil", text, evil.process, 1000, 1000, {"answers": [{"n": text, "what": text}]}),
        wire.Renew(
            "evil", "evil", evil.process, 1000, 1000, {"parts": [{"lane": text, "k": 1}], "done": text}
        ),
        wire.Acquire("evil", text, "main", 2, text, 1, ("s",), text, 1000, 1000, phase=text),
        wire.Yield("evil", text, 1, text, (text,)),
        wire.Cancel("evil", text, text, 1, text),
    ]
    for command in commands:
        try:
            stage.world.scripts.call(command.script, command.argv())
        except redis.exceptions.ResponseError as refused:
            assert "ACL" not in str(refused)
    evil.kill()
    serves(stage, agent)


FORGED = [
    b"", b"\xff\xfe", b"grant", b"grant s", b"grant s x evil/main/1",
    b"grant s 99999999999999999999 evil/main/1", b"grant nothing 5 evil/main/1", b"grant s -1 evil/main/1",
    b"revoke s", b"run ../../x",
    b"run " + b"x" * 100_000, b"command evil", "grant s \u0663 evil/main/1".encode(),
]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["a b", "a|b|c", "|", "s", "a/b/1", "", "\n", "é", "#", "x" * 200, "procs:good", "%d%s"]
)
def test_names_that_no_client_of_ours_would_use(stage: AgentStage, agent: LocalAgent, name: str) -> None:
    """As runs, lanes and members of requests that are queued, joined, renewed and left to lapse."""
    good = serves(stage, agent)
    for run, lane, member in ((name, "main", "0"), ("evil", name, "0"), ("evil", "main", name)):
        for command in (
            wire.Register(run, "j", f"x:1:1:{len(run)}", 0, ("s",), []),
            wire.Acquire(run, "j", lane, 1, member, 1, ("s",), "x:1:1:1", 1000, 300),
            wire.Acquire(run, "j", lane, 2, member, 2, ("s",), "x:1:1:1", 1000, 300),
            wire.Cancel(run, "j", lane, 3, "why"),
        ):
            with contextlib.suppress(redis.exceptions.ResponseError):
                stage.world.scripts.call(command.script, command.argv())
    good.yield_()
    good.kill()
    serves(stage, agent)
    assert "answered with an error" not in agent.log()


def test_forged_messages_and_events(stage: AgentStage, agent: LocalAgent) -> None:
    good = serves(stage, agent)
    keys, link = stage.world.keys, stage.world.client
    top = stage.slice().fence
    claim(stage, "evil", enemy(stage).process)
    for message in [
        *FORGED,
        f"grant s {int(top) + 5} evil/main/1".encode(),
        f"grant s {top} evil/main/1".encode(),
    ]:
        link.publish(keys.node_channel("n1"), message)
        link.publish(keys.run_channel(good.run), message)
    link.xadd(keys.events, {"type": "held", "slice": "s", "run": "evil", "fence": "99999999999999999999"})
    link.xadd(keys.events, {b"\xff": b"\x00", "type": "x" * 100_000})
    assert stage.read(len(STATE)) == STATE
    assert good.again().outcome == "HELD"
    assert stage.device().owner.run == good.run  # who is loaded stays, whatever a message says
    good.yield_()
    good.kill()
    serves(stage, agent)


def test_records_that_make_no_sense(stage: AgentStage, agent: LocalAgent) -> None:
    """Who may write can put nonsense for a slice. The agent declares it anew, and the turn goes on."""
    good = serves(stage, agent)
    keys, link = stage.world.keys, stage.world.client
    nobody = keys.process(f"{good.run}/1:2:3:4")
    for nonsense in (b"{", b"5", b"\xff\xfe", b"x" * 1_000_000):
        link.set(nobody, nonsense)
        link.sadd(keys.procs(good.run), "1:2:3:4")
        link.set(keys.slice("s"), nonsense)
        wait_until(lambda: link.get(keys.slice("s")) != nonsense, 10, "the slice to be declared again")  # noqa: B023
        wait_until(lambda: good.again().outcome == "HELD", 15)
        assert agent.process.poll() is None
        assert stage.read(len(STATE)) == STATE
    assert "it is declared again" in agent.log()
    link.delete(nobody)
    link.srem(keys.procs(good.run), "1:2:3:4")
    good.kill()
    serves(stage, agent)


def test_settings_that_make_no_sense(stage: AgentStage, agent: LocalAgent) -> None:
    """They are none of the slice's; nobody's turn minds."""
    good = serves(stage, agent)
    edit(stage.world.client, stage.world.keys.slice("s"), settings="{")
    assert good.again().outcome == "HELD"
    good.yield_()
    good.kill()
    serves(stage, agent)


def test_a_node_that_is_said_to_be_anothers(stage: AgentStage, agent: LocalAgent) -> None:
    """The agent says so, and serves again once the one that is not there has been silent for long enough."""
    good = serves(stage, agent)
    edit(stage.world.client, stage.world.keys.node("n1"), agent="boot:journal@evil", beat_ms="x")
    wait_until(lambda: "another agent, on host evil" in agent.log(), 10)
    assert good.again().outcome == "HELD"
    wait_until(lambda: good.again() and not is_anothers(stage), 15)
    good.kill()
    serves(stage, agent)


def is_anothers(stage: AgentStage) -> bool:
    """By the record itself: no picture can be drawn of one that makes no sense."""
    return record(stage.world.client, stage.world.keys.node("n1"))["agent"].endswith("@evil")


def test_a_flood_of_requests(stage: AgentStage, agent: LocalAgent) -> None:
    """Whoever was there before is served while it lasts, and it ends with its author."""
    first, second = stage.run("first"), stage.run("second")
    first.take("s")
    second.register("s")
    second.ask("s")
    source = stage.world.scripts
    for start in range(0, 3_000, 300):
        with source.client.pipeline(transaction=False) as pipe:
            for number in range(start, start + 300):
                flood = wire.Acquire("evil", "evil", f"l{number}", 1, "0", 1, ("s",), "x:1:1:1", 1000, 1000)
                pipe.evalsha(scripts.load("acquire").sha, 1, stage.world.keys.meta, *flood.argv())
            pipe.execute()
        first.again()  # as its heartbeats would, however long the flood takes
        second.again()
    first.yield_()
    second.wait_held()
    assert agent.process.poll() is None
    second.yield_()
    serves(stage, agent)


def test_nothing_of_the_enemy_is_ever_stopped_for_long(stage: AgentStage, agent: LocalAgent) -> None:
    """An agent that was killed in the middle of it starts again on the same journal."""
    evil = enemy(stage)
    claim(stage, "evil", "x" * 150, identity(os.getpid()))
    evil.take("s")
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()
    again = stage.agent()
    evil.kill()
    serves(stage, again)
