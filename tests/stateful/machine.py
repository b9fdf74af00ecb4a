"""Members and agents at work on a pool that exists twice: the help that the rules of the walk are made of."""

from __future__ import annotations

import uuid
from typing import Any

import redis
from hypothesis.stateful import RuleBasedStateMachine

from slicelock import wire
from slicelock.events import Event
from slicelock.history import History
from tests.stateful.actors import Member, Node, Process
from tests.stateful.pair import Pair
from tests.stateful.rules import Reference
from tests.stateful.state import DAY, EPOCH_PATIENCE
from tests.support.scripts import Backup, Scripts
from tests.support.stored import stored
from tests.support.world import LEASE_MS, Shown, ready

SLICES: dict[str, tuple[str, ...]] = {"a": ("n1",), "b": ("n1", "n2"), "p": ()}
HOUR_MS, FAR_MS = 3_600_000, 3 * DAY
Wish = tuple[tuple[str, ...], int]


def caller(command: wire.ScriptCall) -> str:
    """Which process or node says this; empty: an operator, or somebody who does not tell."""
    match command:
        case wire.Acquire() | wire.Renew() | wire.Register():
            return command.process
        case wire.Beat() | wire.Results():
            return command.node
        case _:
            return ""


class Base(RuleBasedStateMachine):
    """Three runs (one of two members, one with two lanes), three slices, two nodes."""

    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(Scripts(self.client, f"m{uuid.uuid4().hex[:12]}"))
        self.processes = [
            *(Process("r1"), Process("r2", "0", 2), Process("r2", "1", 2)),
            Process("r3", lanes=("main", "side")),
        ]
        self.nodes = {
            node: Node(node, {name: Shown() for name, nodes in SLICES.items() if node in nodes})
            for node in ("n1", "n2")
        }
        self.plans: dict[tuple[str, str, int], Wish] = {}
        self.marks: list[tuple[Backup, Reference]] = []
        self.last: wire.ScriptCall | None = None
        self.late: list[tuple[wire.ScriptCall, int]] = []
        self.epochs: dict[str, int] = {}  # by process or node: the highest that it was told
        self.hold_next = False
        self.launches = 0
        self.told: dict[str, tuple[int, str]] = {}
        self.given_up: set[str] = set()  # requests that a member is past without having been told
        self.failed_over_at = -HOUR_MS
        self.ahead_ms = 0  # by which the server's clock is ahead

    @property
    def scripts(self) -> Scripts:
        return self.pair.scripts

    @property
    def now_ms(self) -> int:
        """What a clock shows that is right."""
        return self.scripts.now_ms - self.ahead_ms

    def go_ahead(self, ms: int) -> None:
        """The server's clock is by so much ahead from now on."""
        self.scripts.jump(ms - self.ahead_ms)
        self.ahead_ms = ms

    @property
    def members(self) -> list[Member]:
        return [one for process in self.processes for one in process.turns.values()]

    def call(self, command: wire.ScriptCall, lost: bool = False) -> Any:
        """The reply, or None when it or the call itself got lost."""
        who = caller(command)
        told = self.epochs.get(who, 0)
        if self.hold_next:
            self.hold_next = False
            self.late.append((command, told))
            return None
        self.last = command
        reply = self.pair.run(command, told)
        if lost:
            return None
        self.epochs[who] = max(told, getattr(reply, "epoch", 0)) if who else 0
        return reply

    def mark(self) -> None:
        """Remember what the server knows now, for a later failover."""
        self.marks = [*self.marks[-3:], self.pair.checkpoint()]

    def new_life(self, known: tuple[Backup, Reference] | None) -> None:
        """The server has a new life, with everything or as of a checkpoint; calls under way are lost."""
        self.pair.fail_over(known)
        self.late.clear()
        self.failed_over_at = self.scripts.now_ms

    def be_back(self, known: tuple[Backup, Reference]) -> None:
        """The server of a checkpoint is the primary again, in its life of that time."""
        self.pair.be_back(known)
        self.late.clear()
        self.failed_over_at = self.scripts.now_ms

    # ------------------------------------------------------------ members

    def again(self, member: Member, lost: bool = False, no_wait: bool = False) -> None:
        reply = self.call(member.acquire(no_wait=no_wait), lost)
        if reply is None:
            return
        asked = member.id
        if reply.outcome == "RUN_LOST":
            self.relaunch(member.run)
        elif member.told(reply):
            self.check_admitted(member)
        elif member.state == "idle":
            self.given_up.add(asked)

    def check_admitted(self, member: Member) -> None:
        """Who is told HELD: its fences are new, and all nodes have admitted its run under them (or more)."""
        for name, fence in member.fences.items():
            if SLICES[name]:
                top, by = self.told.get(name, (0, ""))
                assert fence > top or (fence, member.id) == (top, by), (
                    f"{member.id} has {name} under {fence} after {by}"
                )
                self.told[name] = fence, member.id
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
                if one.state == "asking":
                    self.given_up.add(one.id)
                one.state = "idle"

    def check_loss(self, member: Member, part: dict[str, Any]) -> None:
        """A failover ends no running turn whose processes are alive and loaded, and heard of in time; nor
        does what another member says of itself."""
        late = self.scripts.now_ms - self.failed_over_at > LEASE_MS
        live = set(member.fences) - member.yielded
        expected = member.id in self.given_up or part["outcome"] not in ("superseded", "cancelled", "yielded")
        if member.state != "turn" or expected or member.evicted or late or "p" in live:
            return
        for name in live:
            for node in SLICES[name]:
                shown = self.nodes[node].shown[name]
                if (shown.run, shown.fence) != (member.run, member.fences[name]):
                    return
        raise AssertionError(f"a running turn was lost: {member}, {part}")

    def when_idle(self, member: Member, verb: str, wish: Wish, lost: bool) -> None:
        """All members of a run ask for the same in the same turn."""
        member.ask(*self.plans.setdefault((member.run, member.lane, member.k + 1), wish))
        self.again(member, lost, no_wait=verb == "some" and member.process.of == 1)

    def when_asking(self, member: Member, verb: str, _: Wish, lost: bool) -> None:
        if verb != "off":
            self.again(member, lost)
            return
        member.state = "leaving"
        self.given_up.add(member.id)
        if self.call(member.cancels(), lost) is not None:
            member.state = "idle"

    def when_turn(self, member: Member, verb: str, _: Wish, lost: bool) -> None:
        live = sorted({*member.slices} - member.yielded)
        if verb != "some" or len(live) < 2:
            self.leave(member, lost)
            return
        member.yielded.add(live[0])
        self.call(member.yields(live[0]), lost)

    def when_leaving(self, member: Member, _verb: str, _wish: Wish, lost: bool) -> None:
        self.leave(member, lost)

    def leave(self, member: Member, lost: bool = False) -> None:
        member.state = "leaving"
        if self.call(member.yields(), lost) is not None:
            member.state = "idle"

    def gone(self, process: Process, seen: bool) -> None:
        """A process is no more; the run's state on the devices goes with it."""
        self.given_up.update(one.id for one in process.turns.values())
        if seen:
            self.nodes["n1"].exits.append({"run": process.run, "process": process.identity})
        for node in self.nodes.values():
            node.unload(process.run)
        for member in self.members:
            if member.run == process.run:
                member.evicted = True

    def relaunch(self, run: str) -> None:
        """The run's state is lost; somebody starts the job anew."""
        self.launches += 1
        for process in self.processes:
            if process.run == run:
                self.gone(process, seen=True)
                process.run = f"{run.partition('.')[0]}.{self.launches}"
                process.start_anew()
                self.pair.run(process.register())

    # ------------------------------------------------------------ several at once

    def begin(self, members: list[Member], wish: Wish) -> list[tuple[Backup, Reference]]:
        """A turn of these members, if they are idle; what the server knew before it and after each step."""
        known = [self.pair.checkpoint()]
        for member in members:
            if member.state == "idle" and member.k == min(one.k for one in members):
                self.when_idle(member, "on", wish, False)
            known.append(self.pair.checkpoint())
        self.all_serve()
        for member in members:
            if member.state == "asking":
                self.again(member)
        return [*known, self.pair.checkpoint()]

    def take(self, names: list[str]) -> None:
        """Somebody who is idle gets a turn on each of these slices, if it is free."""
        single = [member for member in self.members if member.state == "idle" and member.process.of == 1]
        for name, member in zip(names, single, strict=False):
            self.when_idle(member, "on", ((name,), 0), False)
            self.all_serve()
            if member.state == "asking":
                self.again(member)

    def all_serve(self) -> None:
        for node in (*self.nodes.values(), *self.nodes.values()):
            self.serve(node)

    def settle(self) -> None:
        """Slices with agents settle before any member is heard of."""
        for ms in (1, EPOCH_PATIENCE):
            self.scripts.jump(ms)
            for node in self.nodes.values():
                self.beat(node)

    # ------------------------------------------------------------ agents

    def beat(self, node: Node, lost: bool = False) -> None:
        reply = self.call(node.beat(), lost)
        if reply is not None:
            node.heard(reply)

    def tell(self, node: Node, lost: bool = False) -> None:
        """Results by themselves, when there are any."""
        if node.results and self.call(node.in_haste(), lost) is not None:
            node.results.clear()

    def work(self, node: Node, name: str, how: str) -> None:
        if not node.has_work(name):
            return
        if evicted := node.work(name, how, self.now_ms):
            for member in self.members:
                if member.run == evicted and name in {*member.slices} - member.yielded:
                    member.evicted = True

    def answer_hints(self, node: Node) -> None:
        """The hint of a grant names run and fence: an agent with nothing to move is READY without a look."""
        for name, shown in node.shown.items():
            s = self.pair.seen["slices"][name]
            run, _, rest = s["request"].partition("/")
            its = s["state"] == "switching" and shown.run == run and s["fence"] > shown.top
            if its and node.takes(name, s["fence"], self.now_ms):
                lane, _, k = rest.partition("/")
                shown.admit({"run": run, "lane": lane, "k": k, "fence": s["fence"]})
                node.results.append(ready(name, s["fence"]))

    def serve(self, node: Node, how: str = "ready", lost: bool = False) -> None:
        """Hear what is wanted, do it, report it."""
        self.beat(node, lost)
        for name in node.shown if how != "slow" else ():
            self.work(node, name, how)
        self.tell(node, lost)
        self.beat(node, lost)

    # ------------------------------------------------------------ the end

    def check_history(self) -> None:
        """Events alone tell who holds each slice, and who it is being switched to."""
        rows: Any = self.scripts.client.xrange(self.scripts.keys.events)
        history = History(
            Event.of(id_.decode(), {name.decode(): value.decode() for name, value in facts.items()})
            for id_, facts in rows
        )
        for name, known in stored(self.scripts.client, self.scripts.keys)["slices"].items():
            seen = history.slices[name]
            for state, one in (("held", seen.turn), ("switching", seen.switch)):
                assert (one.request if one else "") == (known["request"] if known["state"] == state else "")

    def come_to_rest(self) -> None:
        """With agents answering and members going on, everyone is served and nothing is left under way."""
        self.check_history()
        self.hold_next = False
        self.clocks_come_near()
        for name in SLICES:
            self.pair.run(wire.Drain(name, draining=False))
        for _ in range(60):
            self.scripts.jump(3_000)
            for node in self.nodes.values():
                self.serve(node)
            for process in self.processes:
                self.renew(process)
            for member in self.members:
                self.go_on(member)
            if self.at_rest():
                return
        raise AssertionError(f"not at rest: {[(m.id, m.state) for m in self.members]} {self.pair.seen}")

    def clocks_come_near(self) -> None:
        """All clocks are right; or as far ahead as they were when one of several nodes, or a server that has
        forgotten it, admitted something."""
        self.go_ahead(0)
        far = [
            name
            for node in self.nodes.values()
            for name, shown in node.shown.items()
            if shown.top > (self.now_ms + DAY) * 1024
            if len(SLICES[name]) > 1 or shown.top > self.pair.seen["slices"][name]["fence"]
        ]
        self.go_ahead(FAR_MS if far else 0)
        for node in self.nodes.values():
            node.ahead_ms = self.ahead_ms

    def go_on(self, member: Member) -> None:
        """Take part in what the other members of the run take part in, and finish it."""
        same = (one.k for one in self.members if (one.run, one.lane) == (member.run, member.lane))
        if member.state == "idle" and member.k < max(same):
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
