"""Watches the Sentinels, so that a process leaves an old primary at once and not when a call fails.

One thread listens to two of them and asks both once a second. Whatever they say is only a reason to look:
the primary on which most Sentinels agree is connected to, and its run id tells whether it is another server.
Then every connection of this process to any other server is cut, command connections and subscriptions alike,
and whoever used them opens new ones. A hung primary breaks no connection by itself.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError

from slicelock.errors import SlicelockError
from slicelock.retry import Retry
from slicelock.settings import StoreSettings
from slicelock.shortage import start
from slicelock.store.address import Address
from slicelock.store.connect import Link, socket_of
from slicelock.store.opening import Endpoint, opened
from slicelock.store.sentinel import ASK_S, Route, address_in
from slicelock.store.subscribe import Bell

log = logging.getLogger("slicelock")

LISTENED = 2  # one may be cut off together with the old primary
ASK_AGAIN_S = 1.0
SILENT_S = 3.0
LOOK_S = 2.0
LONGEST_RETRY_S = 1.0  # after a look that found no primary
RESTART_S = 0.5
STOP_S = 2.0
SWITCHED = "+switch-master"


class _SentinelLink:
    """A connection to one Sentinel. Its answers and messages alike are only compared with what is known."""

    def __init__(self, route: Route, sentinel: Address) -> None:
        self.sentinel, self._route = sentinel, route
        self._link: Link = route.dial(sentinel, ASK_S)
        self.heard_at = self._asked_at = time.monotonic()
        try:
            self._send("SUBSCRIBE", SWITCHED)
            self._send(*route.question)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return socket_of(self._link).fileno()

    def ask_if_due(self, now: float) -> None:
        if now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            self._send(*self._route.question)

    def due_at(self) -> float:
        return self._asked_at + ASK_AGAIN_S

    def news(self) -> list[Address | None]:
        """What it has said: addresses, or None for an event that calls for a look."""
        said: list[Address | None] = []
        while self._link.can_read(0):
            reply = self._link.read_response(push_request=True)
            self.heard_at = time.monotonic()
            if not _is_push(reply):
                said.append(address_in(reply))
            elif reply[0] == b"message" and reply[2].split()[:1] == [self._route.service.encode()]:
                said.append(None)
        return said

    def close(self) -> None:
        self._link.disconnect()

    def _send(self, *words: str) -> None:
        self._link.send_command(*words)


def _is_push(reply: Any) -> bool:
    return isinstance(reply, list) and len(reply) == 3  # pyright: ignore[reportUnknownArgumentType]


class PrimaryWatch:
    """One for each process, or agent, that lives longer than a command. Without Sentinels it does nothing.

    `told` is called in the watch's thread after another primary was found and connections were cut; it must
    not block.
    """

    def __init__(self, settings: StoreSettings, told: Callable[[], None]) -> None:
        self._endpoint, self._told = Endpoint(settings, "watch"), told
        self._links: list[_SentinelLink] = []
        self._address: Address | None = None
        self._run_id = ""
        self._suspicious = self._stopped = False
        self._looking = Retry(longest_s=LONGEST_RETRY_S)
        self._listen_at = 0.0
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._bell: Bell | None = None  # while there is a thread

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, if there are Sentinels and it does not run; safe from any thread."""
        if (route := self._endpoint.route) is None:
            return
        with self._starting:
            if self.alive or self._stopped:
                return
            self._bell = self._bell or Bell()
            self._thread = threading.Thread(
                target=self._run, args=(route, self._bell), name="slicelock-watch", daemon=True
            )
            start(self._thread)

    def close(self, patience: float = STOP_S) -> None:
        """End the thread and its connections; for good. A look under way is waited for, `patience` seconds at
        most."""
        with self._starting:
            self._stopped = True
        if self._thread is None or self._bell is None:
            return
        if not self.alive:  # it could not be started, or has ended
            self._bell.close()
            return
        self._bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join(patience)

    # ------------------------------------------------------------ the thread

    def _run(self, route: Route, bell: Bell) -> None:
        while not self._stopped:
            try:
                self._round(route, bell)
            except Exception:
                log.exception("the watch of the Sentinels failed and goes on")
                time.sleep(RESTART_S)
        for link in self._links:
            link.close()
        bell.close()  # here, since `close` waits no longer than it must

    def _round(self, route: Route, bell: Bell) -> None:
        self._listen(route)
        self._await_news(bell)
        for link in list(self._links):
            try:
                self._heed(link)
            except (RedisError, OSError, ValueError):
                self._deafened(link)
        if self._suspicious and time.monotonic() >= self._looking.at:
            self._look(route)

    def _listen(self, route: Route) -> None:
        """Open what is missing; a Sentinel that does not answer is tried again later."""
        now = time.monotonic()
        if len(self._links) >= LISTENED or now < self._listen_at:
            return
        self._listen_at = now + ASK_AGAIN_S
        heard = {link.sentinel for link in self._links}
        for sentinel in route.sentinels:
            if sentinel in heard or len(self._links) >= LISTENED:
                continue
            try:
                self._links.append(_SentinelLink(route, sentinel))
            except (SlicelockError, RedisError, OSError):
                route.suspect(sentinel)

    def _await_news(self, bell: Bell) -> None:
        due = [link.due_at() for link in self._links]
        if len(self._links) < LISTENED:
            due.append(self._listen_at)
        if self._suspicious:
            due.append(self._looking.at)
        poller = select.poll()
        for one in (bell, *self._links):
            poller.register(one, select.POLLIN)
        poller.poll(max(min(due) - time.monotonic(), 0.0) * 1000)

    def _heed(self, link: _SentinelLink) -> None:
        for address in link.news():
            if address is None or address != self._address:
                self._suspicious = True
        link.ask_if_due(now := time.monotonic())
        if now - link.heard_at > SILENT_S:
            self._deafened(link)

    def _deafened(self, link: _SentinelLink) -> None:
        """Go on with another Sentinel; meanwhile anything may have happened."""
        link.close()
        self._links.remove(link)
        self._suspicious = True
        if route := self._endpoint.route:
            route.suspect(link.sentinel)

    def _look(self, route: Route) -> None:
        """Find the primary; if it is another server than before, leave the old one."""
        try:
            link, server = opened(self._endpoint, LOOK_S)
        except SlicelockError as failure:
            if not self._looking.failures:
                log.info("the primary is not found: %s", failure)
            self._looking.failed(time.monotonic())
            return
        link.disconnect()
        self._looking.succeeded()
        self._suspicious = False
        assert server.found is not None
        self._address = server.found.address
        cut = route.cut_others(replace(server.found, run_id=server.run_id))
        if cut or (self._run_id and self._run_id != server.run_id):
            log.info("the primary is %s now; %d connections to others were cut", self._endpoint.place, cut)
            self._told()
        self._run_id = server.run_id
