"""Asks Sentinels where the primary is, and cuts this process's connections to any other server.

One Sentinel alone is not believed: it may be cut off together with an old primary. Nothing is remembered from
one question to the next, so that nobody goes on dialling an address that is no longer the primary's.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections import Counter
from typing import Any, cast
from weakref import WeakKeyDictionary

from redis.exceptions import RedisError

from slicelock.errors import ConfigurationError, SlicelockError, StoreUnavailable
from slicelock.store.address import Address, Target
from slicelock.store.connect import Dialer, Link
from slicelock.store.failures import explain

ASK_S = 0.5  # for one Sentinel to connect and to answer; one that is down must not hold up the others
RESP3 = 3  # messages and answers on one connection


class Route:
    """The way to one primary by its Sentinels. All connections of a process share one."""

    def __init__(self, target: Target) -> None:
        self.service, self.place = target.service, target.place
        self._dialer = Dialer(
            target.sentinel_options, tls=target.tls, name="sentinel", timeout=ASK_S, protocol=RESP3
        )
        self._sentinels = list(target.sentinels)
        random.shuffle(self._sentinels)  # so that many processes do not all ask the same one first
        self._open: WeakKeyDictionary[object, Address | str] = WeakKeyDictionary()
        self._lock = threading.Lock()

    # ------------------------------------------------------------ asking

    @property
    def sentinels(self) -> list[Address]:
        """All Sentinels, those that have answered lately first."""
        return list(self._sentinels)

    def primary(self, patience: float) -> Address:
        """The address on which most of the Sentinels agree (of two: all that answer), asked for now.

        StoreUnavailable when they do not agree within `patience` seconds; ConfigurationError when they refuse
        the password or do not know the name.
        """
        until, votes = time.monotonic() + patience, Counter[Address | None]()
        failures: list[SlicelockError] = []
        for sentinel in self.sentinels:
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                votes[self._ask(sentinel, min(ASK_S, left))] += 1
            except SlicelockError as failure:
                failures.append(failure)
                self.suspect(sentinel)
            if agreed := self._agreed(votes):
                return agreed
        if len(self._sentinels) == 2 and len(votes) == 1 and None not in votes:
            return next(one for one in votes if one)
        raise self._no_answer(votes, failures)

    def dial(self, sentinel: Address, patience: float) -> Link:
        """An open connection to one Sentinel; SlicelockError when there is none."""
        link = self._dialer.link(sentinel)
        link.socket_timeout = link.socket_connect_timeout = patience
        try:
            link.connect()
        except (RedisError, OSError) as error:
            link.disconnect()
            raise _explain(error, sentinel) from None
        return link

    def suspect(self, sentinel: Address) -> None:
        """Ask this one last: it does not answer."""
        with self._lock:
            self._sentinels.remove(sentinel)
            self._sentinels.append(sentinel)

    def _ask(self, sentinel: Address, patience: float) -> Address | None:
        link = self.dial(sentinel, patience)
        try:
            link.send_command(*self.question)
            return address_in(link.read_response())
        except (RedisError, OSError) as error:
            raise _explain(error, sentinel) from None
        finally:
            link.disconnect()

    @property
    def question(self) -> tuple[str, ...]:
        """The command that asks a Sentinel."""
        return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)

    def _agreed(self, votes: Counter[Address | None]) -> Address | None:
        most = len(self._sentinels) // 2 + 1
        return next((one for one, count in votes.items() if one and count >= most), None)

    def _no_answer(self, votes: Counter[Address | None], failures: list[SlicelockError]) -> SlicelockError:
        if votes and set(votes) == {None}:
            return ConfigurationError(
                f"The Sentinels know no primary named {self.service!r}.",
                advice="Correct the name in SLICELOCK_REDIS_URL; `SENTINEL MASTERS` lists those they know.",
            )
        if refused := next((one for one in failures if isinstance(one, ConfigurationError)), None):
            return refused
        told = ", ".join(f"{one[0]}:{one[1]}" if one else "none" for one in votes) or "nothing"
        return StoreUnavailable(
            f"The Sentinels do not agree on the primary {self.service}: {votes.total()} of "
            f"{len(self._sentinels)} answered, with {told}{'. ' + str(failures[0]) if failures else '.'}"
        )

    # ------------------------------------------------------------ connections

    def note(self, connection: object, where: Address | str) -> None:
        """Remember where a connection leads: to an address while it is opened, then to a server's run id."""
        with self._lock:
            self._open[connection] = where

    def cut_others(self, address: Address, run_id: str) -> int:
        """Cut all connections that lead elsewhere than to this primary; how many.

        Whoever uses one sees that it is lost and opens another. Safe from any thread.
        """
        with self._lock:
            others = [one for one, where in self._open.items() if where not in (address, run_id)]
            for one in others:
                del self._open[one]
        return sum(_cut(one) for one in others)


def address_in(answer: Any) -> Address | None:
    """Read a Sentinel's answer; None: it knows no such primary."""
    return (bytes(answer[0]).decode(), int(answer[1])) if answer else None


def _explain(error: Exception, sentinel: Address) -> SlicelockError:
    place = f"{sentinel[0]}:{sentinel[1]}"
    failure = explain(error, place, sent=False)
    if isinstance(failure, ConfigurationError):
        return ConfigurationError(
            f"The Sentinel at {place} refuses the user or the password: {str(error).rstrip('.')}.",
            advice="Set SLICELOCK_SENTINEL_PASSWORD (and SLICELOCK_SENTINEL_USER), or remove them.",
        )
    return StoreUnavailable(
        f"The Sentinel at {place} cannot be asked: {str(error).rstrip('.') or 'no answer'}."
    )


def _cut(connection: object) -> bool:
    """End a connection under its user's hands, whichever kind it is: both sides see it closed."""
    inside = cast(Any, connection)
    writer = getattr(inside, "_writer", None)
    found = writer.transport.get_extra_info("socket") if writer else getattr(inside, "_sock", None)
    if found is None:
        return False
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(found.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
        return True
    return False


_routes: dict[object, Route] = {}
os.register_at_fork(after_in_child=_routes.clear)  # a child must not cut what is its parent's


def route_to(target: Target) -> Route:
    """This process's route to a primary."""
    options = tuple(sorted(target.sentinel_options.items()))
    key = (target.sentinels, target.service, target.tls, options)
    return _routes.setdefault(key, Route(target))
