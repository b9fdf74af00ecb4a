"""Random walks of members, agents, clocks, losses and failovers, over the real scripts and the reference.

SLICELOCK_EXAMPLES is the number of walks (25; `make stateful` takes 500). A failure prints how to repeat it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from slicelock import wire
from slicelock.embedded import EmbeddedServer
from tests.stateful.machine import FAR_MS, HOUR_MS, SLICES, Base, Wish
from tests.support.scripts import connect

Act = tuple[int, str, Wish, bool]
Job = tuple[str, str, bool]
EXAMPLES = int(os.environ.get("SLICELOCK_EXAMPLES", "25"))
STEPS = 40
CHOICES = [("a",), ("b",), ("p",), ("a", "b"), ("a", "p"), ("b", "p"), ("a", "b", "p")]
# What a member does next, by its state: `on` asks, asks again, or yields; `some` gives one slice back; `stay`
# only renews; `off` cancels; `mark` remembers what the server knows, for a later failover.
VERBS = ["on", "on", "on", "on", "some", "stay", "off", "mark"]
# What an agent does with all that is wanted of it; `slow` only beats.
WAYS = ["ready", "ready", "ready", "ready", "slow", "evict", "evict", "later", "restore", "refused"]

lost = st.sampled_from([False, False, False, False, True])
wishes = st.tuples(st.sampled_from(CHOICES), st.sampled_from([0, 0, 0, 1, -1]))
acts = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(VERBS), wishes, lost), min_size=1, max_size=8)
nodes = st.sampled_from(["n1", "n2"])
jobs = st.lists(st.tuples(nodes, st.sampled_from(WAYS), lost), min_size=1, max_size=4)
BOTH: list[Job] = [("n1", "ready", False), ("n2", "ready", False)] * 2


@dataclass(frozen=True)
class Plot:
    """A turn of a run that has begun, and what the server knows of it: nothing (0), or that it gathers,
    waits, is switched or is held, as far as it was `asked` for."""

    run: str
    wish: Wish
    asked: int
    went_on: list[tuple[int, str]]
    taken: bool
    settled: bool


plots = st.builds(
    Plot,
    run=st.sampled_from(["r1", "r2"]),
    wish=wishes,
    asked=st.integers(0, 3),
    went_on=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["on", "some"])), max_size=3),
    taken=st.booleans(),
    settled=st.booleans(),
)


class Machine(Base):
    """What can happen."""

    @initialize()
    def declare(self) -> None:
        for name, its_nodes in SLICES.items():
            self.pair.run(wire.Declare(name, {node: [f"sim:{name}"] for node in its_nodes}))
        for process in self.processes:
            self.pair.run(process.register())
        for node in self.nodes.values():
            self.beat(node)

    @rule(acts=acts)
    def members_act(self, acts: list[Act]) -> None:
        for at, verb, wish, lost in acts:
            member = self.members[at]
            if verb == "mark":
                self.mark()
            elif verb == "stay":
                self.renew(member.process, lost)
            else:
                getattr(self, f"when_{member.state}")(member, verb, wish, lost)

    @rule(jobs=jobs)
    def agents_act(self, jobs: list[Job]) -> None:
        for name, how, lost in jobs:
            self.serve(self.nodes[name], how, lost)

    @rule(acts=acts, jobs=jobs)
    def all_act(self, acts: list[Act], jobs: list[Job]) -> None:
        for i in range(max(len(acts), len(jobs))):
            self.members_act(acts[i : i + 1])
            self.agents_act(jobs[i : i + 1])

    @rule(at=nodes)
    def an_agent_answers_hints(self, at: str) -> None:
        self.answer_hints(self.nodes[at])

    @rule(before=acts, acts=acts, jobs=jobs)
    def the_server_forgets(self, before: list[Act], acts: list[Act], jobs: list[Job]) -> None:
        """Turns begin and end, and then the server knows nothing of it."""
        self.all_act(before, [])
        known = self.pair.checkpoint()
        self.all_act(acts, jobs)
        for node in self.nodes.values():
            self.serve(node)
        self.members_act([(at, "on", wish, False) for at, _, wish, _ in acts])
        self.new_life(known)

    @rule(plot=plots, acts=acts)
    def the_server_forgets_that_a_turn_began(self, plot: Plot, acts: list[Act]) -> None:
        """Its members have gone on since, others may have what they gave back, agents may come first."""
        members = [one for one in self.members if one.run.startswith(plot.run)]
        known = self.begin(members, plot.wish)
        for at, verb in plot.went_on:
            if members[at % len(members)].state == "turn":
                self.when_turn(members[at % len(members)], verb, plot.wish, False)
        if plot.taken:
            self.take([name for name in SLICES if any(name in one.yielded for one in members)])
        self.all_act(acts, BOTH if plot.taken else [])
        self.new_life(known[min(plot.asked, len(known) - 1)])
        if plot.settled:
            self.settle()

    @rule(order=st.permutations(["n1", "n2", "members"]))
    def everybody_is_heard(self, order: list[str]) -> None:
        for what in order:
            if what in self.nodes:
                self.beat(self.nodes[what])
            else:
                for process in self.processes:
                    self.renew(process)

    @rule(at=st.integers(0, 3), how=st.sampled_from(["seen", "unseen", "says so"]), late=lost)
    def a_process_ends(self, at: int, how: str, late: bool) -> None:
        """It is killed, and an agent sees it or nobody does, or it says so itself. Another one takes over."""
        process = self.processes[at]
        if late:
            self.late.append((process.register(), 0))
        if how == "says so":
            self.call(process.register(gone=True))
        self.gone(process, how == "seen")
        process.start_anew()
        reply: Any = self.pair.run(process.register())
        process.learn(reply.lanes)

    @rule(at=nodes)
    def an_agent_restarts(self, at: str) -> None:
        self.nodes[at].restart()

    @rule(at=st.integers(0, 4), requeue=st.booleans())
    def revoke(self, at: int, requeue: bool) -> None:
        self.call(wire.Revoke(self.members[at].id, "operator", requeue))

    @rule(name=st.sampled_from(sorted(SLICES)), draining=st.booleans())
    def drain(self, name: str, draining: bool) -> None:
        self.call(wire.Drain(name, draining, "operator"))

    @rule(ms=st.sampled_from([1, 3, 700, 2_000, 4_999]))
    def time_passes(self, ms: int) -> None:
        self.scripts.jump(ms)

    @rule(ms=st.sampled_from([-HOUR_MS, HOUR_MS, -1, 5_001]))
    def the_clock_jumps(self, ms: int) -> None:
        self.scripts.jump(ms)

    @rule(whose=st.sampled_from(["server", "server", "all", "n1"]), far=st.booleans())
    def clocks_are_far_ahead(self, whose: str, far: bool) -> None:
        """Or right again."""
        if whose in ("server", "all"):
            self.go_ahead(FAR_MS if far else 0)
        for node in self.nodes.values():
            if whose in (node.name, "all"):
                node.ahead_ms = FAR_MS if far else 0

    @rule(steps=st.sampled_from([1, 3, 4, 16]), members=st.booleans(), agents=st.booleans())
    def a_while_passes(self, steps: int, members: bool, agents: bool) -> None:
        """With or without the members being heard of, and the agents."""
        for _ in range(steps):
            self.scripts.jump(4_000)
            for node in self.nodes.values() if agents else ():
                self.beat(node)
            for process in self.processes if members else ():
                self.renew(process)
            if not agents and not members:
                self.call(wire.Revoke("nobody/main/1"))

    @precondition(lambda self: self.last is not None and not getattr(self.last, "requeue", False))
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
        self.pair.run(*self.late.pop(at % len(self.late)))

    @rule(back=st.integers(0, 4))
    def fail_over(self, back: int) -> None:
        """Another server takes over, with everything or without what came after a mark."""
        self.new_life(self.marks[-back] if 0 < back <= len(self.marks) else None)

    @rule(acts=acts, jobs=jobs, order=st.permutations(["n1", "n2", "members"]))
    def the_primary_is_back_in_its_earlier_life(
        self, acts: list[Act], jobs: list[Job], order: list[str]
    ) -> None:
        """Another one served in between, which the first one knows nothing of; those who were served know."""
        self.hold_next = False  # nobody misses it
        self.pair.run(wire.Revoke("nobody/main/1"))
        known = self.pair.checkpoint()
        self.new_life(None)
        self.settle()
        self.all_act(acts, jobs)
        self.everybody_is_heard(order)
        self.be_back(known)
        self.everybody_is_heard(order)

    @rule()
    def flush_the_scripts(self) -> None:
        self.client.script_flush()

    def teardown(self) -> None:
        try:
            if self.pair.seen:
                self.come_to_rest()
        finally:
            if names := self.scripts.names():
                self.client.delete(*names)


@pytest.mark.slow
def test_the_scripts_do_what_the_reference_does(server: EmbeddedServer, make_pool: Callable[[], str]) -> None:
    """Every answer and all that is stored, after every step."""
    with connect(server.url) as client:
        kind = type("TheMachine", (Machine,), {"client": client})
        how = settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="SLICELOCK_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        )
        run_state_machine_as_test(kind, settings=how)  # type: ignore[no-untyped-call]
