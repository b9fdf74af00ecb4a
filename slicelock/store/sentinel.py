"""Asks Sentinels where the primary is, and cuts this process's connections to any other server.

One Sentinel alone is not believed: it may be cut off together with an old primary. Nothing is remembered from
one question to the next, so that nobody goes on dialling an address that is no longer the primary's.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from redis.exceptions import RedisError

from slicelock.errors import ConfigurationError, SlicelockError, StoreUnavailable
from slicelock.store.address import Address, Target
from slicelock.store.connect import Dialer, Link, ask, cut
from slicelock.store.failures import explain

ASK_S = 0.5  # for one Sentinel to connect and to answer; one that is down must not hold up the others
RESP3 = 3  # messages and answers on one connection


class Undecided(StoreUnavailable):
    """The Sentinels that answered do not agree on a primary, as may be in a failover."""


@dataclass(frozen=True, slots=True)
class Primary:
    """A primary as most Sentinels named it. `run_id`: of the server there, empty until it has told, or if it
    does not; `looks`: how often another primary had been looked for before they were asked."""

    address: Address
    looks: int = 0
    run_id: str = ""

    def is_same(self, other: Primary) -> bool:
        """Whether both are one server, as far as is known."""
        if self.run_id and other.run_id:
            return self.run_id == other.run_id
        return self.address == other.address


class Route:
    """The way to one primary by its Sentinels. All connections of a process share one."""

    def __init__(self, target: Target) -> None:
        self.service, self._named_by = target.service, target.named_by
        self._dialer = Dialer(
            target.sentinel_options, tls=target.tls, name="sentinel", timeout=ASK_S, protocol=RESP3
        )
        self._sentinels = list(target.sentinels)
        random.shuffle(self._sentinels)  # so that many processes do not all ask the same one first
        self._count = len(self._sentinels)
        self._most = self._count // 2 + 1
        self._open: WeakKeyDictionary[object, Primary] = WeakKeyDictionary()
        self._found: Primary | None = None  # by the last look
        self._looks = 0
        self._lock = threading.Lock()

    # ------------------------------------------------------------ asking

    @property
    def sentinels(self) -> list[Address]:
        """All Sentinels, those that have answered lately first."""
        return list(self._sentinels)

    def find(self, patience: float) -> Primary:
        """As `primary`, with what is needed to note a connection there."""
        looks = self._looks
        return Primary(self.primary(patience), looks)

    def primary(self, patience: float) -> Address:
        """The address on which most of the Sentinels agree (of two: all that answer), asked for now.

        StoreUnavailable when they do not agree within `patience` seconds; ConfigurationError when as many
        refuse the password or do not know the name.
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
        if self._count == 2 and len(votes) == 1 and None not in votes:
            return next(one for one in votes if one)
        raise self._no_answer(votes, failures)

    def dial(self, sentinel: Address, patience: float) -> Link:
        """An open connection to one Sentinel; SlicelockError when there is none."""
        link = self._dialer.link(sentinel)
        link.socket_timeout = link.socket_connect_timeout = patience
        try:
            link.connect()
        except (RedisError, OSError, UnicodeError) as error:
            link.disconnect()
            raise _explain(error, sentinel) from None
        return link

    def suspect(self, sentinel: Address) -> None:
        """Ask this one last: it does not answer."""
        with self._lock:  # another list: whoever reads the old one misses none
            self._sentinels = [one for one in self._sentinels if one != sentinel] + [sentinel]

    def _ask(self, sentinel: Address, patience: float) -> Address | None:
        link = self.dial(sentinel, patience)
        try:
            return address_in(ask(link, *self.question))
        except (RedisError, OSError, ValueError) as error:
            raise _explain(error, sentinel) from None
        finally:
            link.disconnect()

    @property
    def question(self) -> tuple[str, ...]:
        """The command that asks a Sentinel."""
        return ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)

    def _agreed(self, votes: Counter[Address | None]) -> Address | None:
        return next((one for one, count in votes.items() if one and count >= self._most), None)

    def _no_answer(self, votes: Counter[Address | None], failures: list[SlicelockError]) -> SlicelockError:
        refused = [one for one in failures if isinstance(one, ConfigurationError)]
        against, answered = votes[None] + len(refused), votes.total() + len(refused)
        if against >= self._most or (self._count == 2 and 0 < against == answered):
            return refused[0] if refused else self._unknown()
        if not votes and not failures:
            return StoreUnavailable(
                f"There was no time left to ask the Sentinels for the primary {self.service}."
            )
        told = ", ".join(f"{one[0]}:{one[1]}" if one else "none" for one in votes if votes[one]) or "nothing"
        why = (refused or failures)[:1]
        kind = Undecided if votes.total() else StoreUnavailable
        return kind(
            f"The Sentinels do not agree on the primary {self.service}: {votes.total()} of "
            f"{self._count} answered, with {told}.{''.join(f' {one}' for one in why)}"
        )

    def _unknown(self) -> ConfigurationError:
        return ConfigurationError(
            f"The Sentinels know no primary named {self.service!r}.",
            advice=f"Correct the name in {self._named_by}; `SENTINEL MASTERS` lists those they know.",
        )

    # ------------------------------------------------------------ connections

    def note(self, connection: object, primary: Primary) -> None:
        """Remember where a connection leads, when it is begun and when its server has told its run id.

        It is cut if a look has found another primary since the Sentinels were asked.
        """
        with self._lock:
            late = self._found and primary.looks < self._looks and not primary.is_same(self._found)
            if not late:
                self._open[connection] = primary
        if late:
            cut(connection)

    def cut_others(self, primary: Primary) -> int:
        """A look has found this primary: cut all connections that lead elsewhere; how many.

        Whoever uses one sees that it is lost and opens another. Safe from any thread.
        """
        with self._lock:
            self._found, self._looks = primary, self._looks + 1
            others = [one for one, where in self._open.items() if not where.is_same(primary)]
            for one in others:
                del self._open[one]
        return sum(cut(one) for one in others)


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


_routes: dict[object, Route] = {}
os.register_at_fork(after_in_child=_routes.clear)  # a child must not cut what is its parent's


def route_to(target: Target) -> Route:
    """This process's route to a primary."""
    options = tuple(sorted(target.sentinel_options.items()))
    key = (target.sentinels, target.service, target.tls, options)
    return _routes.setdefault(key, Route(target))
