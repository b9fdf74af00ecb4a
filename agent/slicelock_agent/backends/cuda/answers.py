"""What the driver answers, in words and classes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

GONE, HUNG, BROKEN, STOPPED, UNCLEAR = -1, -2, -3, -4, -5
"""Beside the driver's own codes: the process has ended; the call overran; there is no helper that can call;
the process is stopped, and the call was not made; `cuda-checkpoint` failed with words that are no code's.
"""
OK, INVALID, OUT_OF_MEMORY, NOT_CUDA, OS_CALL, WRONG_STATE = 0, 1, 2, 3, 304, 401
NOT_FOUND, NOT_READY, NOT_PERMITTED, NOT_SUPPORTED, SYSTEM_NOT_READY = 500, 600, 800, 801, 802

NEVER = frozenset({OUT_OF_MEMORY, NOT_FOUND, NOT_SUPPORTED})
"""After these a save of the same process will fail again: it is not tried any more."""
LOST = frozenset({OUT_OF_MEMORY, OS_CALL})
"""After these a restore has lost the process: every later one fails, even with the whole GPU free."""

WORDS = {
    GONE: "the process has ended",
    HUNG: "the driver did not answer in time",
    BROKEN: "the driver cannot be called",
    UNCLEAR: "cuda-checkpoint failed",
    INVALID: "the driver does not know the process (1)",
    OUT_OF_MEMORY: "out of memory (2)",
    NOT_CUDA: "it does not use CUDA (3)",
    OS_CALL: "the driver could not reach the process (304)",
    WRONG_STATE: "it is in another state than was thought (401)",
    NOT_FOUND: "its memory cannot be saved (500): managed memory, CUDA IPC or peer access",
    NOT_READY: "its work on the GPU did not end in time (600)",
    NOT_PERMITTED: "not permitted (800): the agent must be root, and persistence mode must be on",
    NOT_SUPPORTED: "not supported (801): managed memory, CUDA IPC, NCCL over peer access, a profiler, or "
    "this platform",
    SYSTEM_NOT_READY: "the GPU system is not ready (802): is the fabric manager running?",
}


class State(StrEnum):
    """Where one process's state is, as far as the driver tells."""

    RUNNING = "running"
    LOCKED = "locked"
    SAVED = "checkpointed"
    FAILED = "failed"
    """For good: it can neither be saved nor brought back."""
    GONE = "gone"
    NOT_CUDA = "not cuda"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one call: the code, what it told, and how long the driver took."""

    code: int
    value: str | int | None = None
    text: str = ""
    seconds: float = 0.0

    @property
    def words(self) -> str:
        if self.code == STOPPED:
            return self.text
        known = WORDS.get(self.code, f"the driver answered {self.code}")
        return f"{known}: {self.text}" if self.text else known


def state_of(answer: Answer) -> State:
    """The state that an answer to `state` tells. A state that is new to us, or none at all, is UNKNOWN."""
    if answer.code == OK:
        known = str(answer.value).strip().lower()
        return State(known) if known in tuple(State) else State.UNKNOWN
    return {GONE: State.GONE, NOT_CUDA: State.NOT_CUDA}.get(answer.code, State.UNKNOWN)
