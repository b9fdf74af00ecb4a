"""Random walks of members, agents, clocks, losses and failovers, over the real scripts and the reference.

SLICELOCK_EXAMPLES is the number of walks (25; `make stateful` takes 500). A failure prints how to repeat it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.stateful.actors import Member, Node, Process
from tests.stateful.pair import Pair
from tests.support.scripts import Scripts, connect
from tests.support.world import LEASE_MS, Shown

EXAMPLES = int(os.environ.get("SLICELOCK_EXAMPLES", "25"))
SLICES: dict[str, tuple[str, ...]] = {"a": ("n1",), "b": ("n1", "n2"), "p": ()}
CHOICES = [("a",), ("b",), ("p",), ("a", "b"), ("a", "p"), ("b", "p"), ("a", "b", "p")]
HOUR_MS = 3_600_000
STEP_MS = 4_000

member_at = st.integers(0, 4)
process_at = st.integers(0, 3)
node_at = st.sampled_from(["n1", "n2"])
slice_at = st.sampled_from(sorted(SLICES))
lost = st.sampled_from([False, False, False, True])


class Machine(RuleBasedStateMachine):
    """Three runs (one of two members, one with two lanes), three slices, two nodes."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(Scripts(self.client, f"m{uuid.uuid4().hex[:12]}"))
        self.processes = [
            Process("r1"),
            Process("r2", "0", 2),
            Process("r2", "1", 2),
            Process("r3", lanes=("main", "side")),
        ]
        self.nodes = {
            node: Node(node, {name: Shown() for name, nodes in SLICES.items() if node in nodes})
            for node in ("n1", "n2")
        }
        self.plans: dict[tuple[str, str, int], tuple[tuple[str, ...], int]] = {}
        self.saved: Any = None
        self.last: wire.Command | None = None
        self.late: list[wire.Command] = []
        self.hold_next = False
        self.failed_over_at = -HOUR_MS

    # ------------------------------------------------------------ help

    @property
    def scripts(self) -> Scripts:
        return self.pair.scripts

    @property
    def members(self) -> list[Member]:
        return [one for process in self.processes for one in process.turns.values()]

    def call(self, command: wire.Command, lost: bool = False) -> Any:
        """The reply, or None when it or the call itself got lost."""
        if self.hold_next:
            self.hold_next = False
            self.late.append(command)
            return None
        self.last = command
        reply = self.pair.run(command)
        return None if lost else reply

    def again(self, member: Member, lost: bool = False, no_wait: bool = False) -> None:
        reply = self.call(member.acquire(no_wait=no_wait), lost)
        if reply is not None and member.told(reply):
            self.check_admitted(member)

    def check_admitted(self, member: Member) -> None:
        """Who is told HELD: every node has admitted its run under that fence, or by now a later one."""
        for name, fence in member.fences.items():
            for node in SLICES[name]:
                shown = self.nodes[node].shown[name]
                fine = (shown.run, shown.fence) == (member.run, fence) or shown.top > fence or not shown.run
                assert fine, f"{member.id} was told HELD on {name}; {node} shows {shown}"

    def renew(self, process: Process, lost: bool = False) -> None:
        told = [one for one in process.turns.values() if one.state in ("asking", "turn")]
        reply = self.call(process.renew(), lost)
        for one, part in zip(told, reply.parts if reply is not None else (), strict=reply is not None):
            if part["state"] == "LOST":
                self.check_loss(one, part)
                one.state = "idle"

    def check_loss(self, member: Member, part: dict[str, Any]) -> None:
        """A failover ends no running turn whose processes are alive and loaded."""
        late = self.scripts.now_ms - self.failed_over_at > LEASE_MS
        live = set(member.fences) - member.yielded
        if member.state != "turn" or part["outcome"] != "superseded" or member.evicted or late or "p" in live:
            return
        for name in live:
            for node in SLICES[name]:
                shown = self.nodes[node].shown[name]
                if (shown.run, shown.fence) != (member.run, member.fences[name]):
                    return
        raise AssertionError(f"a running turn was lost: {member}, {part}")

    def beat(self, node: Node, lost: bool = False) -> None:
        reply = self.call(node.beat(), lost)
        if reply is not None:
            node.heard(reply)

    def work(self, node: Node, name: str, how: str) -> None:
        if name not in node.shown or not node.has_work(name):
            return
        if evicted := node.work(name, how):
            for member in self.members:
                if member.run == evicted and name in member.slices:
                    member.evicted = True

    def leave(self, member: Member, lost: bool = False) -> None:
        member.state = "leaving"
        if self.call(member.yields(), lost) is not None:
            member.state = "idle"

    # ------------------------------------------------------------ rules

    @initialize()
    def declare(self) -> None:
        for name, nodes in SLICES.items():
            self.pair.run(wire.Declare(name, {node: [f"sim:{name}"] for node in nodes}))
        for process in self.processes:
            self.pair.run(process.register())

    @rule(
        at=member_at,
        slices=st.sampled_from(CHOICES),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
        lost=lost,
        hasty=lost,
    )
    def ask(self, at: int, slices: tuple[str, ...], priority: int, lost: bool, hasty: bool) -> None:
        member = self.members[at]
        if member.state == "idle":
            plan = self.plans.setdefault((member.run, member.lane, member.k + 1), (slices, priority))
            member.ask(*plan)
            self.again(member, lost, no_wait=hasty and member.process.of == 1)

    @rule(at=member_at, lost=lost)
    def ask_again(self, at: int, lost: bool) -> None:
        if self.members[at].state == "asking":
            self.again(self.members[at], lost)

    @rule(at=process_at, lost=lost)
    def heartbeat(self, at: int, lost: bool) -> None:
        self.renew(self.processes[at], lost)

    @rule(at=member_at, lost=lost)
    def yield_(self, at: int, lost: bool) -> None:
        if self.members[at].state in ("turn", "leaving"):
            self.leave(self.members[at], lost)

    @rule(at=member_at, name=slice_at, lost=lost)
    def yield_some(self, at: int, name: str, lost: bool) -> None:
        member = self.members[at]
        if member.state == "turn" and name in member.slices and {*member.slices} - member.yielded - {name}:
            member.yielded.add(name)
            self.call(member.yields(name), lost)

    @rule(at=member_at, lost=lost)
    def cancel(self, at: int, lost: bool) -> None:
        member = self.members[at]
        if member.state == "asking":
            member.state = "leaving"
            if self.call(member.cancels(), lost) is not None:
                member.state = "idle"

    @rule(at=process_at, seen=st.booleans())
    def die(self, at: int, seen: bool) -> None:
        """A process is killed; an agent sees it or nobody does. Another one starts in its place."""
        process = self.processes[at]
        if seen:
            self.nodes["n1"].exits.append({"run": process.run, "process": process.identity})
        for node in self.nodes.values():
            node.unload(process.run)
        for member in self.members:
            if member.run == process.run:
                member.evicted = True
        process.start_anew()
        reply = self.pair.run(process.register())
        process.learn(reply.lanes)  # type: ignore[attr-defined]

    @rule(at=node_at, lost=lost)
    def agent_beats(self, at: str, lost: bool) -> None:
        self.beat(self.nodes[at], lost)

    @rule(at=node_at, name=slice_at, how=st.sampled_from(["ready", "ready", "evict", "restore", "refused"]))
    def agent_works(self, at: str, name: str, how: str) -> None:
        self.work(self.nodes[at], name, how)

    @rule()
    def agents_serve(self) -> None:
        for _ in range(2):
            for node in self.nodes.values():
                self.beat(node)
                for name in node.shown:
                    self.work(node, name, "ready")

    @rule(at=node_at)
    def agent_restarts(self, at: str) -> None:
        self.nodes[at].restart()

    @rule(at=member_at, requeue=st.booleans())
    def revoke(self, at: int, requeue: bool) -> None:
        self.call(wire.Revoke(self.members[at].id, "operator", requeue))

    @rule(ms=st.sampled_from([1, 3, 700, 2_000, 4_999]))
    def time_passes(self, ms: int) -> None:
        self.scripts.jump(ms)

    @rule(ms=st.sampled_from([-HOUR_MS, HOUR_MS, -1, 5_001]))
    def clock_jumps(self, ms: int) -> None:
        self.scripts.jump(ms)

    @rule(steps=st.sampled_from([3, 4, 16]), members=st.booleans(), agents=st.booleans())
    def a_while_passes(self, steps: int, members: bool, agents: bool) -> None:
        """With or without the members being heard of, and the agents."""
        for _ in range(steps):
            self.scripts.jump(STEP_MS)
            for node in self.nodes.values() if agents else ():
                self.beat(node)
            for process in self.processes if members else ():
                self.renew(process)
            if not agents and not members:
                self.call(wire.Revoke("nobody/main/1"))

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat_the_last_call(self) -> None:
        """It changes nothing but timers that say when somebody was last heard of."""
        assert self.last is not None
        self.pair.run(self.last)
        before = {name: self.pair.seen[name] for name in ("slices", "queues", "requests", "runs", "ready")}
        self.pair.run(self.last)
        after = {name: self.pair.seen[name] for name in before}
        assert after == before, f"repeating {self.last} changes what is stored"

    @rule()
    def hold_the_next_call_back(self) -> None:
        self.hold_next = True

    @precondition(lambda self: self.late)
    @rule(at=st.integers(0, 3))
    def deliver_a_call_late(self, at: int) -> None:
        self.pair.run(self.late.pop(at % len(self.late)))

    @rule()
    def checkpoint(self) -> None:
        self.saved = self.pair.checkpoint()

    @rule(forgets=st.booleans())
    def fail_over(self, forgets: bool) -> None:
        """The server has a new life, and perhaps forgot the last calls; those under way are lost for good."""
        self.pair.fail_over(self.saved if forgets else None)
        self.late.clear()
        self.failed_over_at = self.scripts.now_ms

    @rule()
    def flush_the_scripts(self) -> None:
        self.client.script_flush()

    # ------------------------------------------------------------ the end

    def teardown(self) -> None:
        """With agents answering and members going on, everyone is served and everything comes to rest."""
        try:
            if self.pair.seen:
                self.come_to_rest()
        finally:
            names = self.scripts.names()
            if names:
                self.client.delete(*names)

    def come_to_rest(self) -> None:
        self.hold_next = False
        for _ in range(60):
            self.scripts.jump(3_000)
            for node in self.nodes.values():
                self.beat(node)
                for name in node.shown:
                    self.work(node, name, "ready")
                self.beat(node)
            for process in self.processes:
                self.renew(process)
            for member in self.members:
                self.go_on(member)
            if self.at_rest():
                return
        raise AssertionError(f"not at rest: {[(m.id, m.state) for m in self.members]} {self.pair.seen}")

    def go_on(self, member: Member) -> None:
        """Take part in what the other members of the run take part in, and finish it."""
        if member.state == "idle" and member.k < max(
            m.k for m in self.members if (m.run, m.lane) == (member.run, member.lane)
        ):
            member.ask(*self.plans[member.run, member.lane, member.k + 1])
        if member.state == "asking":
            self.again(member)
        if member.state in ("turn", "leaving"):
            self.leave(member)

    def at_rest(self) -> bool:
        slices = self.pair.seen["slices"].values()
        return (
            all(member.state == "idle" for member in self.members)
            and all(not run["open"] for run in self.pair.seen["runs"].values())
            and all(s["state"] == "free" and s["settling"] is None and not s["blocked"] for s in slices)
        )


def test_the_scripts_do_what_the_reference_does(server: EmbeddedServer, make_pool: Callable[[], str]) -> None:
    """Every answer and all that is stored, after every step."""
    with connect(server.url) as client:
        kind = type("TheMachine", (Machine,), {"client": client})
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            kind,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=60,
                deadline=None,
                derandomize="SLICELOCK_EXAMPLES" not in os.environ,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
