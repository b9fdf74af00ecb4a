"""What goes wrong, as one line with advice."""

from __future__ import annotations

from slicelock import errors
from slicelock.exits import ExitCode, UsageError, exit_code, told

__all__ = ["ExitCode", "Refused", "UsageError", "exit_code", "one_line"]


class Refused(errors.SlicelockError):
    """The pool refused what was asked."""


# For errors that bring no advice of their own: that of the first class that fits.
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (UsageError, "See --help."),
    (errors.ConfigurationError, "See `slicelock doctor`."),
    (errors.SchemaMismatch, "Upgrade the older slicelock; agents first."),
    (
        errors.StoreError,
        "Check SLICELOCK_REDIS_URL and that the server runs; `slicelock doctor` tells more.",
    ),
    (errors.UnknownSlice, "`slicelock slice list` shows the slices that there are."),
    (errors.NotGranted, "`slicelock status` shows who holds and who waits."),
    (errors.LeaseLost, "`slicelock status` shows who has the slice now."),
    (errors.SlicelockError, ""),
)


def one_line(error: BaseException) -> str:
    """What happened and what to do, in one line."""
    text = told(error)
    if not isinstance(error, errors.SlicelockError):
        return text
    advice = next(advice for kind, advice in _ADVICE if isinstance(error, kind))
    return text if error.advice or not advice else f"{text} {advice}"
