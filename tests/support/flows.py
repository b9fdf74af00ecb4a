"""Flows driven by hand: answers from a list, a clock that the test moves, no Redis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slicelock.codec import ScriptCall
from slicelock.flow import Call, Flow, Now, Wait
from slicelock.protocol import Ledger, Part, Who, Wish
from slicelock.wire import RegisterReply

Answer = Any  # a reply, an exception to throw, or a function of the command


def who(**facts: Any) -> Who:
    """Member 0 of run r1, of job j1."""
    given: dict[str, Any] = {
        **{"run": "r1", "job": "j1", "member": "0", "members": 1, "process": "boot:1:2:3", "uid": 1000},
        **{"lease_ms": 60_000, "wait_ms": 15_000, "poll_s": 3.0},
    }
    return Who(**(given | facts))


def part(*slices: str, **wish: Any) -> Part:
    return Part(Wish(slices or ("a",), **wish), "r1")


def known(**lanes: dict[str, Any]) -> RegisterReply:
    """What `register` answers: `main={"k": 3, "state": "ended", "joined": []}`."""
    return RegisterReply("OK", lanes=lanes)


@dataclass
class Hand:
    """Drives flows. Each call takes the next answer; `calls` and `waits` tell what the flow did.

    A call takes `call_s` seconds of the made-up clock. A wait takes its whole time, or ends at once with a
    message when `messages` says so.
    """

    answers: list[Answer]
    call_s: float = 0.0
    now: float = 1000.0
    messages: Callable[[], bool] = lambda: False
    calls: list[ScriptCall] = field(default_factory=list[ScriptCall])
    waits: list[float] = field(default_factory=list[float])

    def drive(self, flow: Flow[Any]) -> Any:
        """Run a flow to its end, as the stores do."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._take(step)
                except BaseException as failure:
                    step = flow.throw(failure)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            flow.close()

    def _take(self, step: Any) -> Any:
        match step:
            case Now():
                return self.now
            case Call(command):
                return self._answer(command)
            case Wait(seconds):
                self.waits.append(seconds)
                if self.messages():
                    return True
                self.now += seconds
                return False

    def _answer(self, command: ScriptCall) -> Any:
        self.calls.append(command)
        self.now += self.call_s
        assert self.answers, f"an unexpected call: {command}"
        answer = self.answers.pop(0)
        answer = answer(command) if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def scripts(self) -> list[str]:
        """The scripts called, in order."""
        return [call.script for call in self.calls]


def registered(**facts: Any) -> Ledger:
    """A ledger whose process is known and has taken no turn; its first turn registers again."""
    ledger = Ledger(who(**facts))
    ledger.registered = True
    return ledger
