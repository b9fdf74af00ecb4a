"""What can go wrong, one function a fault: it does the harm, and undoes what does not heal by itself.

A fault returns when the harm is over: whatever it stopped runs again. How long the fleet then needs is for
the campaign to measure. `dice` decides who is met.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Generator
from random import Random

from tests.chaos.fleet import DISK_BYTES, Actor, Fleet
from tests.support.proxy import Fault, Proxy, script_call
from tests.support.sentinels import Node, Process
from tests.support.wait import wait_until

Do = Callable[[Fleet, Random], None]
FAULTS: dict[str, Do] = {}
FAILOVER_S = 15.0


def fault(name: str) -> Callable[[Do], Do]:
    """Register a fault under the name that the table shows."""

    def register(do: Do) -> Do:
        FAULTS[name] = do
        return do

    return register


@fault("nothing (for comparison)")
def nothing(fleet: Fleet, dice: Random) -> None:
    del fleet, dice


# ------------------------------------------------------------ servers


@fault("primary killed, restarted after the failover")
def primary_killed(fleet: Fleet, dice: Random) -> None:
    del dice
    primary = fleet.coordinator.primary
    primary.kill()
    _await_failover(fleet, primary)
    primary.start()


@fault("primary stopped, continued after the failover")
def primary_stopped(fleet: Fleet, dice: Random) -> None:
    primary = fleet.coordinator.primary
    with _stopped(primary):
        _await_failover(fleet, primary)
        pause(dice.uniform(0, 2))


@fault("primary stopped for a moment")
def primary_paused(fleet: Fleet, dice: Random) -> None:
    with _stopped(fleet.coordinator.primary):
        pause(dice.uniform(0.1, 0.8))


@fault("replica killed and restarted")
def replica_killed(fleet: Fleet, dice: Random) -> None:
    replica = dice.choice(fleet.coordinator.replicas)
    replica.kill()
    pause(dice.uniform(0, 1))
    replica.start()


@fault("replica stopped and continued")
def replica_stopped(fleet: Fleet, dice: Random) -> None:
    with _stopped(dice.choice(fleet.coordinator.replicas)):
        pause(dice.uniform(0.5, 3))


@fault("Sentinel killed and restarted")
def sentinel_killed(fleet: Fleet, dice: Random) -> None:
    sentinel = dice.choice(fleet.coordinator.sentinels)
    sentinel.kill()
    pause(dice.uniform(0, 1))
    sentinel.start()


@fault("Sentinel stopped and continued")
def sentinel_stopped(fleet: Fleet, dice: Random) -> None:
    with _stopped(dice.choice(fleet.coordinator.sentinels)):
        pause(dice.uniform(0.5, 3))


@fault("memory of the primary used up")
def memory_full(fleet: Fleet, dice: Random) -> None:
    with fleet.coordinator.primary.client() as client:
        client.config_set("maxmemory", "1mb")
        try:
            pause(dice.uniform(0.5, 2))
        finally:
            client.config_set("maxmemory", "0")


@fault("scripts flushed")
def scripts_flushed(fleet: Fleet, dice: Random) -> None:
    del dice
    with fleet.coordinator.primary.client() as client:
        client.script_flush()


@fault("clients paused by the primary")
def clients_paused(fleet: Fleet, dice: Random) -> None:
    with fleet.coordinator.primary.client() as client:
        client.execute_command("CLIENT", "PAUSE", dice.randint(200, 900), dice.choice(["ALL", "WRITE"]))


@fault("clients killed by the primary")
def clients_killed(fleet: Fleet, dice: Random) -> None:
    with fleet.coordinator.primary.client() as client:
        for kind in dice.choice([["normal"], ["pubsub"], ["normal", "pubsub"], ["replica"]]):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


# ------------------------------------------------------------ the network


@fault("connections cut")
def cut(fleet: Fleet, dice: Random) -> None:
    del dice
    _network(fleet).cut()


@fault("network stalled beyond the failover")
def stalled(fleet: Fleet, dice: Random) -> None:
    primary = fleet.coordinator.primary
    primary.proxy.stall()
    try:
        _await_failover(fleet, primary)
        pause(dice.uniform(0, 1))
    finally:
        primary.proxy.accept()


@fault("network slow")
def slow(fleet: Fleet, dice: Random) -> None:
    network = _network(fleet)
    network.delay_s = dice.uniform(0.005, 0.05)
    try:
        pause(dice.uniform(0.5, 2))
    finally:
        network.delay_s = 0.0


@fault("messages dropped")
def messages_dropped(fleet: Fleet, dice: Random) -> None:
    network = _network(fleet)
    network.drop_messages = True
    try:
        pause(dice.uniform(0.5, 2))
    finally:
        network.drop_messages = False


def _calls(name: str, kind: Fault) -> None:
    @fault(name)
    def harm(fleet: Fleet, dice: Random) -> None:
        network = _network(fleet)
        network.fault(kind, script_call(), skip=dice.randint(0, 5), times=dice.randint(1, 8))
        try:
            pause(dice.uniform(0.3, 1))
        finally:
            network.clear()
            network.release()


_calls("calls lost", Fault.LOSE_CALL)
_calls("replies lost, connection cut", Fault.LOSE_REPLY)
_calls("replies lost, connection kept", Fault.SWALLOW_REPLY)
_calls("calls delivered late", Fault.DELIVER_LATE)


# ------------------------------------------------------------ agents and jobs


@fault("agent killed and restarted")
def agent_killed(fleet: Fleet, dice: Random) -> None:
    number = dice.randrange(len(fleet.agents))
    _kill_agent(fleet, number)
    fleet.restart_agent(number)


@fault("agent stopped and continued")
def agent_stopped(fleet: Fleet, dice: Random) -> None:
    process = dice.choice(fleet.agents).process
    process.send_signal(signal.SIGSTOP)
    try:
        pause(dice.uniform(0.2, 4))
    finally:
        process.send_signal(signal.SIGCONT)


@fault("no space for an agent's journal")
def journal_full(fleet: Fleet, dice: Random) -> None:
    number = dice.randrange(len(fleet.agents))
    ballast = fleet.state_dir(number) / "ballast"
    try:
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(DISK_BYTES))
        pause(dice.uniform(0.5, 2))
    finally:
        ballast.unlink()
    if fleet.agents[number].process.poll() is not None:
        fleet.restart_agent(number)


@fault("holder killed")
def holder_killed(fleet: Fleet, dice: Random) -> None:
    fleet.replace(_doomed(fleet, dice, "computing"))


@fault("waiter killed")
def waiter_killed(fleet: Fleet, dice: Random) -> None:
    fleet.replace(_doomed(fleet, dice, "yielded"))


@fault("holder and its agent killed together")
def both_killed(fleet: Fleet, dice: Random) -> None:
    actor = _doomed(fleet, dice, "computing")
    number = int(actor.job.told[-1]["slice"].removeprefix("s"))
    _kill_agent(fleet, number)
    fleet.replace(actor)
    fleet.restart_agent(number)


@fault("job stopped and continued within its lease")
def job_stopped(fleet: Fleet, dice: Random) -> None:
    _freeze(dice.choice(fleet.kept), dice.uniform(0.2, 3))


@fault("holder stopped beyond its lease, then continued")
def holder_stopped(fleet: Fleet, dice: Random) -> None:
    _freeze(_doomed(fleet, dice, "computing"), dice.uniform(3.5, 5))


# ------------------------------------------------------------ how


def pause(seconds: float) -> None:
    """Let a fault last: here time is the harm, not something to wait for."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, seconds + 5)


@contextlib.contextmanager
def _stopped(server: Process) -> Generator[None]:
    """SIGSTOP for the block."""
    server.freeze()
    try:
        yield
    finally:
        server.wake()


def _await_failover(fleet: Fleet, old: Node) -> None:
    fleet.coordinator.wait_failover(old, time.monotonic(), FAILOVER_S)


def _network(fleet: Fleet) -> Proxy:
    return fleet.coordinator.primary.proxy


def _kill_agent(fleet: Fleet, number: int) -> None:
    fleet.agents[number].process.kill()
    fleet.agents[number].process.wait()


def _doomed(fleet: Fleet, dice: Random, doing: str) -> Actor:
    """A job that may be killed, and that is doing this now."""
    choices = wait_until(
        lambda: [actor for actor in fleet.doomed if actor.job.doing == doing], 60, f"a job is {doing}"
    )
    return dice.choice(choices)


def _freeze(actor: Actor, seconds: float) -> None:
    actor.job.signal(signal.SIGSTOP)
    try:
        pause(seconds)
    finally:
        actor.job.signal(signal.SIGCONT)
