"""What this process knows of its own turns: which are open, which are over, and what is still to be told.

Pure data. The calling threads and the companion share it; every change is one operation on a dict, which
CPython does at once, so there is no lock that an interrupted thread could leave closed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from slicelock.codec import ScriptCall
from slicelock.errors import Holding, LeaseLost
from slicelock.keys import request_id
from slicelock.wire import Acquire, AcquireReply, Cancel, Register, RegisterReply, Yield


@dataclass(frozen=True, slots=True)
class Who:
    """This process as a member of a run, and how patient it is. `poll_s` in seconds, the leases in ms."""

    run: str
    job: str
    member: str
    members: int
    process: str
    uid: int
    lease_ms: int
    wait_ms: int
    poll_s: float
    launched: int = 1  # processes that the launcher says it has started


@dataclass(frozen=True, slots=True)
class Wish:
    """What one turn is asked for. `timeout` in seconds of waiting; None waits without limit."""

    slices: tuple[str, ...]
    lane: str = "main"
    phase: str = ""
    priority: int = 0
    timeout: float | None = None
    wait: bool = True


class Waker(Protocol):
    """Where whoever waits for a part is woken; safe from any thread."""

    def put(self) -> None: ...


class Owner(Protocol):
    """Whoever has a part, to be told of its loss; called from the companion's thread."""

    def notice(self, part: Part) -> None: ...


@dataclass(eq=False, slots=True)
class Part:
    """This member's part of one turn. `deadline`: when the lease ends by this process's monotonic clock."""

    wish: Wish
    run: str
    k: int = 0
    spent: bool = False  # the number k may be known to Redis
    asked: bool = False  # Redis may know the request as open
    fences: Mapping[str, int] = field(default_factory=dict[str, int])
    given_back: tuple[str, ...] = ()
    moved: bool = False
    agentless: bool = False
    waited_s: float = 0.0
    deadline: float = math.inf
    unconfirmed: bool = False
    wanted: bool = False
    loss: LeaseLost | None = None
    inbox: Waker | None = None
    owner: Callable[[], Owner | None] | None = None  # a weak reference: a turn nobody has any more ends

    @property
    def lane(self) -> str:
        return self.wish.lane

    @property
    def id(self) -> str:
        return request_id(self.run, self.wish.lane, self.k)

    @property
    def dropped(self) -> bool:
        """Whether its turn object is nobody's any more."""
        return self.owner is not None and self.owner() is None

    @property
    def slices_left(self) -> tuple[str, ...]:
        """The slices that have not been given back."""
        return tuple(name for name in self.wish.slices if name not in self.given_back)


@dataclass(frozen=True, slots=True)
class Done:
    """The number of a turn that this member has finished, or gave up before it was told that it had begun."""

    k: int
    gave_up: bool


class Ledger:
    """All of this process's parts in one run."""

    def __init__(self, who: Who) -> None:
        self.who = who
        self.open_parts: dict[str, Part] = {}  # by lane: waiting or in its turn
        self.done: dict[str, Done] = {}  # by lane: the last turn this member has finished
        self.undelivered: dict[ScriptCall, None] = {}  # yields and cancels without an answer, oldest first
        self.telling: dict[ScriptCall, None] = {}  # yields whose callers are about to hear the answer
        self.slices: dict[str, None] = {}
        self.met: set[str] = set()  # those of them that Redis has known
        self.hooks: list[Mapping[str, Any]] = []
        self.registered = False
        self._numbers: dict[str, int] = {}  # by lane: the last number this process has used
        self._seen: dict[str, int] = {}  # by lane: the number after which a new process goes on
        self._known: tuple[str, ...] | None = None  # the slices it is registered with; None: not as it is now

    # ------------------------------------------------------------ turns

    def open(self, part: Part) -> None:
        """Begin to ask for a turn; Holding when this process has one in the lane, or is asking already."""
        if (other := self.open_parts.setdefault(part.lane, part)) is not part:
            state = "holds" if other.fences else "is already waiting for"
            raise Holding(
                f"Lane {part.lane} of run {self.who.run} {state} a turn on {' '.join(other.slices_left)}.",
                advice="Yield it first, or give the Slice a lane of its own.",
                slice=" ".join(other.slices_left),
                run=self.who.run,
            )
        self.slices.update(dict.fromkeys(part.wish.slices))

    def number(self, part: Part, k: int = 0) -> None:
        """Make the part its lane's k-th turn; by default the next one."""
        last = self._numbers.get(part.lane, self._seen.get(part.lane, 0))
        part.k = self._numbers[part.lane] = k or last + 1

    def begin(self, part: Part, reply: AcquireReply, sent: float) -> None:
        """The turn has begun; `sent` is the monotonic time from before the question."""
        part.deadline = sent + reply.lease_ms / 1000
        part.moved, part.agentless = reply.moved, reply.agentless
        part.fences = reply.fences

    def withdraw(self, part: Part, why: str) -> Cancel | None:
        """The turn is not wanted any more; the call to tell it, which is kept until `delivered`."""
        self.close(part)
        if not part.asked:
            return None
        cancel = Cancel(self.who.run, self.who.job, part.lane, part.k, why)
        self.keep(cancel)
        return cancel

    def give_back(self, part: Part, slices: tuple[str, ...] = ()) -> Yield:
        """The turn is over, or its part on some slices; the call to tell it."""
        part.given_back = (*part.given_back, *slices)
        if not slices or not part.slices_left:
            self.close(part)
            slices = ()
        return Yield(self.who.run, part.lane, part.k, self.who.member, slices, self.who.members)

    def close(self, part: Part) -> None:
        """The part is over for this process. A number that Redis has not seen is used again."""
        if self.open_parts.get(part.lane) is not part:
            return
        if part.spent:
            self.done[part.lane] = Done(part.k, gave_up=not part.fences)
        elif part.k:
            self._numbers[part.lane] = part.k - 1
        del self.open_parts[part.lane]

    def keep(self, call: ScriptCall) -> None:
        """A call that must be delivered sooner or later, whatever happens."""
        self.undelivered[call] = None

    def keep_untold(self, call: ScriptCall) -> None:
        """Its caller hears no answer any more, if it has not heard one."""
        if call in self.telling:
            self.keep(call)
            self.telling.pop(call, None)

    def delivered(self, call: ScriptCall) -> None:
        """A call was answered."""
        self.undelivered.pop(call, None)
        self.telling.pop(call, None)

    # ------------------------------------------------------------ calls

    def acquire_call(self, part: Part) -> Acquire:
        """The question for the part's turn."""
        who, wish = self.who, part.wish
        return Acquire(
            who.run,
            who.job,
            wish.lane,
            part.k,
            who.member,
            who.members,
            wish.slices,
            who.process,
            who.lease_ms,
            who.wait_ms,
            int(part.waited_s * 1000),
            wish.priority,
            wish.phase,
            not wish.wait,
        )

    # ------------------------------------------------------------ the process itself

    @property
    def outdated(self) -> bool:
        """Whether Redis knows less of this process than there is."""
        return self._known != tuple(self.slices)

    def must_register(self, lane: str) -> bool:
        """Whether Redis is to be told of this process anew, or asked where the lane stands."""
        return lane not in self._numbers or self.outdated

    def offer(self, hooks: Iterable[Mapping[str, Any]], slices: Iterable[str]) -> None:
        """Replace what this process's hooks are known by; it uses these slices too."""
        self.hooks, self._known = list(hooks), None
        self.slices.update(dict.fromkeys(slices))

    def forgotten(self) -> None:
        """Redis does not know this process, or not as it is now."""
        self._known = None

    def register_call(self, *, gone: bool = False) -> Register:
        """The call that makes this process known, or says that it is gone."""
        who, self._known = self.who, tuple(self.slices)
        return Register(who.run, who.job, who.process, who.uid, self._known, self.hooks, gone)

    def learn(self, reply: RegisterReply) -> None:
        """The process is known; its first turn in a lane goes on after the newest, or joins it."""
        self.registered = True
        for lane, newest in reply.lanes.items():
            k = int(newest["k"])
            joins = newest["state"] == "gathering" and self.who.member not in newest["joined"]
            self._seen[lane] = k - 1 if joins else k
