"""What Redis's errors mean to slicelock. A password never appears in a message."""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,  # noqa: A004 - redis-py's, which is not the builtin
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)

from slicelock.errors import ConfigurationError, SlicelockError, StoreError, StoreTimeout, StoreUnavailable

# The server has refused the call for reasons that pass; nothing was done.
PASSING = ("LOADING", "BUSY", "READONLY", "NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
# What only another setting of the database helps against.
DATABASE = ("DB index", "invalid DB index", "ERR DB index", "SELECT is not allowed")
_PASSING_TYPES = (BusyLoadingError, ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError)


def explain(error: Exception, place: str, *, sent: bool) -> SlicelockError:
    """Turn an error of redis-py into one of ours. `sent`: the server may have carried the call out."""
    if isinstance(error.__cause__, AuthenticationError):  # wrapped by redis-py's asyncio side
        error = error.__cause__
    text = str(error).strip().rstrip(".") or "no answer in time"
    if isinstance(error, SlicelockError):
        return error
    if isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)) or text.startswith(
        DATABASE
    ):
        return _refused(error, text, place)
    if isinstance(error, _PASSING_TYPES) or text.startswith(PASSING):
        return StoreUnavailable(f"Redis at {place} cannot serve at the moment: {text}.")
    if isinstance(error, OutOfMemoryError) or text.startswith("OOM"):
        return _full(text, place)
    if isinstance(error, (ConnectionError, TimeoutError, OSError)):
        return _unreached(text, place, sent=sent)
    return StoreError(f"Redis at {place} answered with an error: {text}.")


def _refused(error: Exception, text: str, place: str) -> ConfigurationError:
    if isinstance(error, NoPermissionError):
        return ConfigurationError(
            f"Redis at {place} does not give this user the rights that slicelock needs: {text}.",
            advice="Allow it scripts, pub/sub, and the keys and channels that begin with slicelock:.",
        )
    if text.startswith(DATABASE):
        return ConfigurationError(
            f"Redis at {place} has no such database: {text}.",
            advice="Correct the number at the end of SLICELOCK_REDIS_URL, usually 0.",
        )
    return ConfigurationError(
        f"Redis at {place} refuses the user or the password: {text}.",
        advice="Check the credentials in SLICELOCK_REDIS_URL.",
    )


def _full(text: str, place: str) -> StoreError:
    return StoreError(
        f"Redis at {place} has reached its memory limit: {text}.",
        advice="Raise its maxmemory, or remove what other programs keep there.",
    )


def _unreached(text: str, place: str, *, sent: bool) -> StoreError:
    if sent:
        return StoreTimeout(f"Redis at {place} did not answer: {text}. The call may have been carried out.")
    return StoreUnavailable(
        f"Redis at {place} cannot be reached: {text}.",
        advice="Check that it runs, and SLICELOCK_REDIS_URL.",
    )
