"""What goes wrong, as an exit code and one line with advice."""

from __future__ import annotations

from enum import IntEnum

from slicelock import errors


class ExitCode(IntEnum):
    """How a command ends. `slicelock run` ends with the command's own code unless slicelock ended it."""

    DONE = 0
    OTHER = 1
    USAGE = 2
    SETTINGS = 3
    UNREACHABLE = 4
    NOT_GRANTED = 5
    TURN_LOST = 6


class Refused(errors.SlicelockError):
    """The pool refused what was asked."""


class UsageError(errors.SlicelockError):
    """The command was called in a way that makes no sense."""


# The first class that fits; the advice is for errors that bring none of their own.
_RULES: tuple[tuple[type[BaseException], ExitCode, str], ...] = (
    (UsageError, ExitCode.USAGE, "See --help."),
    (errors.ConfigurationError, ExitCode.SETTINGS, "See `slicelock doctor`."),
    (errors.SchemaMismatch, ExitCode.OTHER, "Upgrade the older slicelock; agents first."),
    (
        errors.StoreError,
        ExitCode.UNREACHABLE,
        "Check SLICELOCK_REDIS_URL and that the server runs; `slicelock doctor` tells more.",
    ),
    (errors.UnknownSlice, ExitCode.NOT_GRANTED, "`slicelock slice list` shows the slices that there are."),
    (errors.NotGranted, ExitCode.NOT_GRANTED, "`slicelock status` shows who holds and who waits."),
    (errors.LeaseLost, ExitCode.TURN_LOST, "`slicelock status` shows who has the slice now."),
    (errors.SlicelockError, ExitCode.OTHER, ""),
)


def exit_code(error: BaseException) -> ExitCode:
    """The exit code for an error."""
    return next((code for kind, code, _ in _RULES if isinstance(error, kind)), ExitCode.OTHER)


def one_line(error: BaseException) -> str:
    """What happened and what to do, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, errors.SlicelockError):
        return f"{type(error).__name__}: {text} (repeat with --debug to see where)"
    advice = next(advice for kind, _, advice in _RULES if isinstance(error, kind))
    return text if error.advice or not advice else f"{text} {advice}"
