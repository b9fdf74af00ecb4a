"""Exit codes: how `slicelock` and `slicelock-agent` end."""

from __future__ import annotations

from enum import IntEnum

from slicelock import errors
from slicelock.words import brief, clean


class ExitCode(IntEnum):
    """How a command ends. `slicelock run` ends with the command's own code unless slicelock ended it."""

    DONE = 0
    OTHER = 1
    USAGE = 2
    SETTINGS = 3
    UNREACHABLE = 4
    NOT_GRANTED = 5
    TURN_LOST = 6


class UsageError(errors.ConfigurationError):
    """The command was called in a way that makes no sense."""


ERRORS: dict[int, type[errors.SlicelockError]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.SETTINGS: errors.ConfigurationError,
    ExitCode.UNREACHABLE: errors.StoreUnavailable,
}
"""What a program of ours that ended with a code has met; others are an AgentError to whoever started it."""

# The first class that fits.
_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (errors.ConfigurationError, ExitCode.SETTINGS),
    (errors.SchemaMismatch, ExitCode.OTHER),
    (errors.StoreError, ExitCode.UNREACHABLE),
    (errors.NotGranted, ExitCode.NOT_GRANTED),
    (errors.LeaseLost, ExitCode.TURN_LOST),
)


def exit_code(error: BaseException) -> ExitCode:
    """The exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.OTHER)


def told(error: BaseException) -> str:
    """What an error says, in one line; of one that is none of ours also what it is."""
    text = brief(clean(" ".join(str(error).split()))) or type(error).__name__
    if isinstance(error, errors.SlicelockError):
        return text
    return f"{type(error).__name__}: {text} (repeat with --debug to see where)"
