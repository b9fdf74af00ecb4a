"""Everything slicelock raises is one of these, or a subclass that one part has for itself: the command line,
the driver, model servers. A class's docstring is its default message.

SlicelockError
├── ConfigurationError        a setting is missing or makes no sense
├── StoreError                the coordinator (Redis)
│   ├── StoreUnavailable      not reached; nothing was done
│   ├── StoreTimeout          sent, no answer: undecided
│   ├── NotReplicated         granted, but no replica has confirmed it
│   └── SchemaMismatch        the pool was written by another version
├── TurnError                 a turn
│   ├── NotGranted            the turn did not begin
│   │   ├── AcquireTimeout
│   │   ├── Busy
│   │   ├── Cancelled
│   │   ├── Holding
│   │   ├── Mismatch
│   │   ├── QueueFull
│   │   ├── UnknownSlice
│   │   ├── MemberTaken
│   │   ├── SwitchFailed
│   │   └── RunLost
│   └── LeaseLost             the turn began and is over against the holder's will
│       ├── Expired
│       ├── Revoked
│       └── Superseded
├── SimError                  the simulated accelerator
└── AgentError                what an agent could not do
    ├── SnapshotFailed
    ├── RestoreFailed
    └── BackendUnavailable
"""

from __future__ import annotations


class SlicelockError(Exception):
    """Something went wrong in slicelock."""

    def __init__(
        self,
        message: str = "",
        *,
        advice: str = "",
        slice: str = "",  # noqa: A002 - the field's word
        job: str = "",
        run: str = "",
        fence: int | None = None,
    ) -> None:
        text = message or (type(self).__doc__ or "").splitlines()[0]
        super().__init__(f"{text} {advice}".strip() if advice else text)
        self.advice, self.slice, self.job, self.run, self.fence = advice, slice, job, run, fence


class ConfigurationError(SlicelockError):
    """A setting is missing or makes no sense."""


class StoreError(SlicelockError):
    """Redis did not do what was asked."""


class StoreUnavailable(StoreError):
    """Redis cannot be reached; nothing was done."""


class StoreTimeout(StoreError):
    """Redis did not answer in time; the call may or may not have been carried out."""


class NotReplicated(StoreError):
    """No replica has confirmed the grant in time, so it does not count."""


class SchemaMismatch(StoreError):
    """The pool's data was written by another version of slicelock."""


class TurnError(SlicelockError):
    """A turn could not be had or kept."""


class NotGranted(TurnError):
    """The turn did not begin."""


class AcquireTimeout(NotGranted):
    """The turn did not begin in time; the request was withdrawn."""


class Busy(NotGranted):
    """The slice is not free, and the request was made without waiting."""


class Cancelled(NotGranted):
    """The request was cancelled before its turn began."""


class Holding(NotGranted):
    """This lane already holds a turn; a run never waits while it holds."""


class Mismatch(NotGranted):
    """Another member asked for other slices, or with another number of members, in the same turn."""


class QueueFull(NotGranted):
    """The slice's queue is full."""


class UnknownSlice(NotGranted):
    """No such slice is declared in this pool."""


class MemberTaken(NotGranted):
    """Another live process already is this member of the run."""


class SwitchFailed(NotGranted):
    """The device state could not be switched for this turn."""


class RunLost(NotGranted):
    """The run's device state on this slice is lost."""


class LeaseLost(TurnError):
    """The turn is over although its holder had not yielded it."""

    def __init__(self, message: str = "", *, state_saved: bool = False, **facts: object) -> None:
        super().__init__(message, **facts)  # type: ignore[arg-type]
        self.state_saved = state_saved


class Expired(LeaseLost):
    """The lease ran out without being renewed."""


class Revoked(LeaseLost):
    """The turn was revoked."""


class Superseded(LeaseLost):
    """Redis lost this turn and another one took its place."""


class SimError(SlicelockError):
    """The simulated accelerator cannot do what was asked."""


class AgentError(SlicelockError):
    """An agent could not do its work."""


class SnapshotFailed(AgentError):
    """The run's device state could not be moved to host memory."""


class RestoreFailed(AgentError):
    """The run's device state could not be brought back."""


class BackendUnavailable(AgentError):
    """The backend cannot work on this node."""
