"""Every script once: its arguments in the order of ARGV, its outcomes, and what its reply carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from slicelock.codec import Fences, Json, Reply, ScriptCall, Words


def _outcomes(text: str) -> frozenset[str]:
    return frozenset(text.split()) | {"SCHEMA"}


# ---------------------------------------------------------------- client scripts


@dataclass(frozen=True, slots=True)
class AcquireReply(Reply):
    """`fences`, `lease_ms`, `moved`, `agentless` (a slice has no nodes: the lease alone guards it): HELD.
    `position`, `next_ms` (0: nothing due): QUEUED. `missing` (MISMATCH: 0 once it has started), `joined`:
    GATHERING. `by`, `heard_ms`: TAKEN. `ended`, `newest`: ENDED. `slice`: the slice that `reason` is
    about."""

    fences: Fences = field(default_factory=dict[str, int])
    lease_ms: int = 0
    moved: bool = False
    agentless: bool = False
    position: int = 0
    next_ms: int = 0
    missing: int = 0
    joined: Words = ()
    by: str = ""
    heard_ms: int = 0
    ended: str = ""
    newest: int = 0
    slice: str = ""


WAITING = frozenset({"SWITCHING", "QUEUED", "GATHERING"})
"""Outcomes of an acquire whose turn has not begun: Redis knows the slices and the request."""


@dataclass(frozen=True, slots=True)
class Acquire(ScriptCall[AcquireReply]):
    """Open the k-th request of a run and lane, or join it, or learn where it stands. Implies that this
    member is done with every earlier turn of the lane."""

    script: ClassVar[str] = "acquire"
    outcomes: ClassVar[frozenset[str]] = _outcomes(
        "HELD SWITCHING QUEUED GATHERING BUSY MISMATCH LATE TAKEN QUEUE_FULL NO_SUCH_SLICE ENDED RUN_LOST"
    )
    reply: ClassVar[type[Reply]] = AcquireReply

    run: str
    job: str
    lane: str
    k: int
    member: str
    members: int
    slices: Words
    process: str
    lease_ms: int
    wait_ms: int
    waited_ms: int = 0
    priority: int = 0
    phase: str = ""
    no_wait: bool = False

    def needs_replicas(self, reply: AcquireReply) -> bool:
        """A grant that no agent confirms."""
        return reply.outcome == "HELD" and reply.agentless


@dataclass(frozen=True, slots=True)
class RenewReply(Reply):
    """`parts`: one {lane, k, state, reason, outcome, state_saved, wanted} for each part sent, in order;
    state is a request state, UNKNOWN or LOST. `commands`: hook commands of this process without an answer
    yet, [{n, what, slice}]; an answer carries the same `n` (text), `what` and `slice`."""

    epoch: int = 0
    parts: Json = ()
    commands: Json = ()
    registered: bool = False


@dataclass(frozen=True, slots=True)
class Renew(ScriptCall[RenewReply]):
    """The heartbeat of everything that one process has.

    `report` is JSON: `parts` [{lane, k, member, members, slices, phase, priority, fences {slice: fence}
    (empty before HELD was told), yielded [slices]}], `done` {lane: {k, member, members, gave_up}} (the
    last turn that this process's member has finished; `gave_up`: before it had begun), `answers` [{n,
    what, slice, outcome: done|failed, reason, bytes, seconds}]."""

    script: ClassVar[str] = "renew"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK")
    reply: ClassVar[type[Reply]] = RenewReply

    run: str
    job: str
    process: str
    lease_ms: int
    wait_ms: int
    report: Json


@dataclass(frozen=True, slots=True)
class YieldReply(Reply):
    """`waiters`: how many requests wait for the slices given back. LOST carries `ended` (the request's
    outcome), `reason`, and `state_saved`: whether all its nodes still have the run's device state."""

    waiters: int = 0
    ended: str = ""
    state_saved: bool = False


@dataclass(frozen=True, slots=True)
class Yield(ScriptCall[YieldReply]):
    """End this member's part of a turn: of `slices`, or of the whole turn when empty."""

    script: ClassVar[str] = "yield"
    outcomes: ClassVar[frozenset[str]] = _outcomes("YIELDED PARTIAL ALREADY LOST")
    reply: ClassVar[type[Reply]] = YieldReply

    run: str
    lane: str
    k: int
    member: str
    slices: Words = ()
    members: int = 1


@dataclass(frozen=True, slots=True)
class Cancel(ScriptCall[Reply]):
    """Give a request up for all its members, also one not yet seen or just held; it never starts
    afterwards."""

    script: ClassVar[str] = "cancel"
    outcomes: ClassVar[frozenset[str]] = _outcomes("CANCELLED ALREADY")
    reply: ClassVar[type[Reply]] = Reply

    run: str
    job: str
    lane: str
    k: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class RegisterReply(Reply):
    """`lanes`: {lane: {k, state, joined [members]}}, the newest turn of each lane of the run."""

    lanes: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Register(ScriptCall[RegisterReply]):
    """Make a process known, so that agents watch it and may move its device state; or say that it is `gone`.

    `hooks` is JSON: [{name, slices [empty: all of the process's], self (true: its framework moves its own
    state, so that it gets no commands and is only verified), residue (bytes that may stay on each device),
    overlaps (true: it can change places with another run's block by block), server (what `servers.Plan`
    says of a model server that the agent speaks to itself)}]."""

    script: ClassVar[str] = "register"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK")
    reply: ClassVar[type[Reply]] = RegisterReply

    run: str
    job: str
    process: str
    uid: int
    slices: Words
    hooks: Json
    gone: bool = False


# ---------------------------------------------------------------- agent, operator and viewer scripts


@dataclass(frozen=True, slots=True)
class BeatReply(Reply):
    """`wanted`: {slice: {state, fence, request, run, job, lane, k, settling, settings, known}} for each
    slice of the node. `results`: OK or STALE for each result sent. `runs`: {run: {rev, job, processes
    {identity: {uid, slices, hooks, heard_ms, command, answer}}}} for runs whose rev differs from
    the one the agent knows. `more`: something is still due to be reaped. `by`, `heard_ms`, `beat_ms` (pool
    time of its last beat): OTHER."""

    epoch: int = 0
    more: bool = False
    wanted: Json = field(default_factory=dict[str, Any])
    results: Json = ()
    runs: Json = field(default_factory=dict[str, Any])
    by: str = ""
    heard_ms: int = 0
    beat_ms: int = 0


@dataclass(frozen=True, slots=True)
class Beat(ScriptCall[BeatReply]):
    """An agent's heartbeat, and the pool's sweep. With `silent_ms` 0 it only asks whether another agent
    of the node is heard of; and with `ended` in its report it says that this one is not heard of any more.

    `report` is JSON: `slices` {slice: {run, lane, k, fence, top, doing, saved [runs], loaded [runs],
    devices {device: {used, total, busy}}, progress {step: evicting|restoring, run, bytes [0: unknown],
    moved, seconds} (both optional, for people)}} (run, lane, k and fence of the last admitted run if it
    is still loaded, else empty and 0; `top` the highest fence ever admitted; `doing` empty when nothing
    is under way), `results` [{slice, fence, outcome: READY|FAILED, what: evict|restore|refused|later, reason,
    run, moved, bytes, seconds, steps [{step, run, way, bytes, seconds}], busy (percent)}] (the last two
    optional, for people), `exits` [{run, process}], `commands` [{run, process, n, what: offload|reload,
    slice}], `known` {run: rev}."""

    script: ClassVar[str] = "beat"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK OTHER")
    reply: ClassVar[type[Reply]] = BeatReply

    node: str
    agent: str
    version: str
    silent_ms: int
    report: Json


@dataclass(frozen=True, slots=True)
class AskWanted(ScriptCall[BeatReply]):
    """What is wanted of a node on one slice: `wanted` and `epoch` of a beat's answer."""

    script: ClassVar[str] = "wanted"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK")
    reply: ClassVar[type[Reply]] = BeatReply

    node: str
    slice: str


@dataclass(frozen=True, slots=True)
class Results(ScriptCall[BeatReply]):
    """How switches of a node have ended, sent at once; `results` and the answer are those of a `Beat`."""

    script: ClassVar[str] = "results"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK OTHER")
    reply: ClassVar[type[Reply]] = BeatReply

    node: str
    agent: str
    results: Json


@dataclass(frozen=True, slots=True)
class RevokeReply(Reply):
    """`ended`: how the request had ended already. `state`: what it is in, if not being switched."""

    ended: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Revoke(ScriptCall[RevokeReply]):
    """End a named request for an operator; optionally put it back into its queues."""

    script: ClassVar[str] = "revoke"
    outcomes: ClassVar[frozenset[str]] = _outcomes("REVOKED NOT_SWITCHING ENDED")
    reply: ClassVar[type[Reply]] = RevokeReply

    request: str
    why: str = ""
    requeue: bool = False


@dataclass(frozen=True, slots=True)
class DeclareReply(Reply):
    """`slice`: for OVERLAP, the slice that has the device already. `nodes`: for HAS_NODES, each with its
    devices, separated by spaces."""

    slice: str = ""
    nodes: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Declare(ScriptCall[DeclareReply]):
    """Declare a slice with all its nodes and devices ({node: [devices]}; empty: agentless), or change one
    that is not in use; with `keep_nodes` not by making one agentless that has nodes."""

    script: ClassVar[str] = "declare"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK IN_USE OVERLAP HAS_NODES")
    reply: ClassVar[type[Reply]] = DeclareReply

    slice: str
    nodes: Json
    settings: Json = field(default_factory=dict[str, Any])
    keep_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Forget(ScriptCall[Reply]):
    """Forget a slice that is not in use, or a node that has none."""

    script: ClassVar[str] = "forget"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK IN_USE NO_SUCH_SLICE NO_SUCH_NODE")
    reply: ClassVar[type[Reply]] = Reply

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class DrainReply(Reply):
    """Whether the slice was draining before this call."""

    was_draining: bool = False


@dataclass(frozen=True, slots=True)
class Drain(ScriptCall[DrainReply]):
    """Let nothing new start on a slice, or let it go on. Turns and switches under way come to their own
    end; who waits is told `why`."""

    script: ClassVar[str] = "drain"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK NO_SUCH_SLICE")
    reply: ClassVar[type[Reply]] = DrainReply

    slice: str
    draining: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class StatusReply(Reply):
    """`picture`: see `picture.Picture`."""

    picture: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Status(ScriptCall[StatusReply]):
    """One consistent picture of the pool, or of one slice; changes nothing."""

    script: ClassVar[str] = "status"
    outcomes: ClassVar[frozenset[str]] = _outcomes("OK NO_SUCH_SLICE")
    reply: ClassVar[type[Reply]] = StatusReply

    slice: str = ""
    queue_limit: int = 100
    focus: str = ""


SCRIPT_CALLS: tuple[type[ScriptCall], ...] = (
    Acquire,
    Renew,
    Yield,
    Cancel,
    Register,
    Beat,
    AskWanted,
    Results,
    Revoke,
    Declare,
    Forget,
    Drain,
    Status,
)
