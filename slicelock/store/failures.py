"""What Redis's errors mean to slicelock. A password never appears in a message."""

from __future__ import annotations

import re

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,  # noqa: A004 - redis-py's, which is not the builtin
    InvalidResponse,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)

from slicelock.errors import ConfigurationError, SlicelockError, StoreError, StoreTimeout, StoreUnavailable
from slicelock.shortage import remedy

CLOSED = "The connection to Redis was closed, since this party of the pool has ended."
# The server has refused the call for reasons that pass; nothing was done.
PASSING = ("LOADING", "BUSY", "READONLY", "NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")
KILLED = "Script killed by user"  # an operator's SCRIPT KILL, which ends none that has written
# What the operator of the server can do about them, where they do not pass by themselves.
REMEDIES = {
    "NOREPLICAS": "Fewer replicas follow it than its min-replicas-to-write asks for, so it refuses every "
    "change: start them, or turn the setting off: CONFIG SET min-replicas-to-write 0.",
    "MISCONF": "It cannot write to its disk, so it refuses every change: free the disk, or correct the "
    "rights of its folder; its log has the reason.",
}
# What only another setting of the database helps against.
DATABASE = ("DB index", "invalid DB index", "ERR DB index", "SELECT is not allowed")
# A script runs with its caller's rights: how Redis 7 and Valkey, and Redis 6.2, say that they do not suffice.
RIGHTS = ("ACL failure in script", "The user executing the script can't")
SCRIPT = re.compile(r" script: (\w+, )?on @user_script.*")  # where in a script, which nobody can use
# What stands before the error of a command where a script passes it on; before Redis 7 always.
PASSED_ON = re.compile(r"^(Error running script \(call to \w+\): .*?: -?|ERR )(?=[A-Z]{2,} |The user |ACL )")
# What helps where no connection comes about, by what Python's ssl and hiredis say; the first that fits.
WAYS = (
    (
        re.compile(r"\[SSL: (WRONG_VERSION_NUMBER|UNEXPECTED_|RECORD_LAYER)"),
        "What answers there does not speak TLS: begin SLICELOCK_REDIS_URL with redis://, or correct its host "
        "and port.",
    ),
    (
        re.compile(r"\[(SSL|X509)\b"),
        "Check SLICELOCK_TLS_CA, SLICELOCK_TLS_CERT and SLICELOCK_TLS_KEY; the server's certificate has to "
        "name the host as the URL does.",
    ),
    (
        re.compile("^Protocol error"),
        "What answers there is not Redis, or speaks TLS: correct the host and port in SLICELOCK_REDIS_URL, "
        "or begin it with rediss://.",
    ),
    (
        re.compile("max number of clients reached"),
        "Raise its maxclients, or end programs that keep connections to it; a job's process has up to three.",
    ),
    (re.compile(""), "Check that it runs, and SLICELOCK_REDIS_URL or SLICELOCK_SENTINELS."),
)
_PASSING_TYPES = (BusyLoadingError, ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError)


def explain(error: Exception, place: str, *, sent: bool) -> SlicelockError:
    """Turn an error of redis-py into one of ours. `sent`: the server may have carried the call out."""
    if isinstance(error.__cause__, AuthenticationError):  # wrapped by redis-py's asyncio side
        error = error.__cause__
    text = PASSED_ON.sub("", str(error).strip().rstrip(".")) or "no answer in time"
    if isinstance(error, SlicelockError):
        return error
    refusals = (AuthenticationError, AuthorizationError, NoPermissionError)
    if isinstance(error, refusals) or text.startswith((*DATABASE, *RIGHTS)):
        return _refused(error, text, place)
    if isinstance(error, _PASSING_TYPES) or text.startswith(PASSING) or KILLED in text:
        return StoreUnavailable(
            f"Redis at {place} cannot serve at the moment: {SCRIPT.sub('', text).rstrip('.')}.",
            advice=REMEDIES.get(text.partition(" ")[0], ""),
        )
    if isinstance(error, OutOfMemoryError) or text.startswith("OOM"):
        return _full(text, place)
    if isinstance(error, (ConnectionError, TimeoutError, OSError, InvalidResponse)):
        return _unreached(text, place, sent=sent)
    return StoreError(
        f"Redis at {place} answered with an error: {text}.",
        advice="A record, or what was sent, makes no sense to the script; the runbook says how to find it."
        if "script" in text
        else "",
    )


def _refused(error: Exception, text: str, place: str) -> ConfigurationError:
    if isinstance(error, NoPermissionError) or text.startswith(RIGHTS):
        return ConfigurationError(
            f"Redis at {place} does not give this user the rights that this needs: {SCRIPT.sub('', text)}.",
            advice="Use the user that fits: client for jobs, agent for agents, operator to declare and "
            "forget, viewer to look; examples/deploy/redis/users.acl has what each needs.",
        )
    if text.startswith(DATABASE):
        return ConfigurationError(
            f"Redis at {place} has no such database: {text}.",
            advice="Correct the number at the end of SLICELOCK_REDIS_URL, or SLICELOCK_SENTINEL_DB; it is "
            "usually 0.",
        )
    return ConfigurationError(
        f"Redis at {place} refuses the user or the password: {text}.",
        advice="Check the credentials in SLICELOCK_REDIS_URL, or SLICELOCK_REDIS_USER and "
        "SLICELOCK_REDIS_PASSWORD.",
    )


def _full(text: str, place: str) -> StoreUnavailable:
    """It passes like the others: scripts are refused whole, and what lets go of something still works."""
    return StoreUnavailable(
        f"Redis at {place} has reached its memory limit: {SCRIPT.sub('', text).rstrip('.')}.",
        advice="Raise its maxmemory, or remove what other programs keep there.",
    )


def _unreached(text: str, place: str, *, sent: bool) -> StoreError:
    if sent:
        return undecided(place, text)
    advice = remedy(text) or next(advice for says, advice in WAYS if says.search(text))
    return StoreUnavailable(f"Redis at {place} cannot be reached: {text}.", advice=advice)


def undecided(place: str, text: str = "") -> StoreTimeout:
    """A call was sent, and nothing else is known of it."""
    return StoreTimeout(
        f"Redis at {place} did not answer{text and f': {text}'}. The call may have been carried out.",
        advice="Check that it runs and is reached; to repeat the call does no harm.",
    )
