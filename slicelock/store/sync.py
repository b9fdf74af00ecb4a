"""Runs scripts and flows for threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Protocol, TypeVar

from redis.exceptions import NoScriptError, RedisError, ResponseError

from slicelock.codec import R, ScriptCall
from slicelock.errors import SlicelockError, StoreError, StoreUnavailable
from slicelock.flow import Call, Flow, Now, Wait
from slicelock.keys import Keys
from slicelock.scripts import Source, load
from slicelock.settings import StoreSettings
from slicelock.store.connect import pack
from slicelock.store.epochs import Epochs
from slicelock.store.failures import CLOSED, explain
from slicelock.store.opening import Endpoint, opened
from slicelock.store.raw_link import RawLink
from slicelock.store.replicas import Replicas
from slicelock.store.server import Server

T = TypeVar("T")

CLOSE_S = 2.0


class Inbox(Protocol):
    """Where a waiting flow learns that a message for it has come."""

    def wait(self, seconds: float) -> bool:
        """Whether a message came within `seconds`, or since the last call."""
        ...


class Store:
    """One connection to a pool's Redis, opened at the first call; safe to share between threads.

    Nothing is repeated: StoreUnavailable means that nothing was done, StoreTimeout that it is undecided.
    `overlay` replaces parts of the scripts, for tests.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        name: str = "client",
        overlay: Path | None = None,
        epochs: Epochs | None = None,
    ) -> None:
        self._endpoint, self._epochs = Endpoint(settings, name), epochs or Epochs()
        self._replicas = Replicas(settings, sentinels=self._endpoint.route is not None)
        self._server = Server()
        self._timeout = settings.store_timeout
        self._meta = Keys(settings.pool).meta
        self._overlay = overlay
        self._link: RawLink | None = None  # while it is open
        self._closed = False
        self._lock = threading.Lock()
        self._callers: set[int] = set()  # threads that have the lock, or wait for it

    @property
    def place(self) -> str:
        """Where Redis is, without credentials; with Sentinels, the primary that they have last named."""
        return self._endpoint.place

    @property
    def server(self) -> Server:
        """The server that its connection leads to, or led to last."""
        return self._server

    def run(self, call: ScriptCall[R], patience: float | None = None) -> R:
        """Run one script and decode its answer. `patience` (seconds) shortens the timeout for this call.

        A signal handler or finaliser may come in the middle of a call: its own would wait for that for ever,
        and raises StoreError.
        """
        caller = threading.get_ident()
        if caller in self._callers and self._lock.locked():
            raise StoreError(
                "A call to Redis in the middle of another one of the same thread was not made.",
                advice="Have a signal handler or finaliser set a flag, and act on it outside.",
            )
        try:
            self._callers.add(caller)  # before the lock: a handler may run as soon as it is taken
            return self._run_alone(call, patience)
        finally:
            self._callers.discard(caller)

    def drive(self, flow: Flow[T], inbox: Inbox | None = None) -> T:
        """Run a flow to its end. Whatever interrupts it is thrown into it, so that it can clean up."""
        try:
            step = next(flow)
            while True:
                try:
                    if isinstance(step, Call):
                        answer: Any = self.run(step.call)
                    elif isinstance(step, Now):
                        answer = time.monotonic()
                    else:
                        answer = _wait(step, inbox)
                except BaseException as failure:  # noqa: BLE001 - the flow decides
                    step = flow.throw(failure)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            flow.close()

    def close(self, patience: float = CLOSE_S) -> None:
        """Close the connection for good: later calls raise StoreError. A call of another thread that takes
        longer than `patience` seconds is cut off."""
        self._closed = True
        if self._lock.acquire(timeout=patience):
            try:
                self._drop()
            finally:
                self._lock.release()
        else:
            self._endpoint.give_up()
            if link := self._link:
                link.cut()

    def _run_alone(self, call: ScriptCall[R], patience: float | None) -> R:
        if patience is None:
            with self._lock:
                return self._run(call, None)
        if not self._lock.acquire(timeout=patience):
            raise StoreUnavailable("Other calls to Redis take too long; this one was not made.")
        try:
            return self._run(call, patience)
        finally:
            self._lock.release()

    # ------------------------------------------------------------ calls, under the lock

    def _run(self, call: ScriptCall[R], patience: float | None) -> R:
        reply = call.decode(self._call(call, patience))
        self._epochs.heed(reply)
        if call.needs_replicas(reply):
            self._await_replicas()
        return reply

    def _source(self, call: ScriptCall) -> Source:
        return load(call.script, self._overlay)

    def _call(self, call: ScriptCall, patience: float | None) -> Any:
        source = self._source(call)
        tail = ("1", self._meta, *call.argv())
        try:
            return self._exchange(("EVALSHA", source.sha, *tail), patience)
        except NoScriptError:
            return self._exchange(("EVAL", source.text, *tail), patience)

    def _exchange(self, words: tuple[str, ...], patience: float | None) -> Any:
        link = self._send(words, patience)
        try:
            return link.receive(patience)
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            raise self._failed(error) from None
        except BaseException:
            self._drop()  # an interrupted exchange leaves half a reply behind
            raise

    def _failed(self, error: RedisError | OSError) -> SlicelockError:
        failure = explain(error, self._endpoint.place, sent=True)
        if not isinstance(error, ResponseError) or isinstance(failure, StoreUnavailable):
            self._drop()
        return failure

    def _await_replicas(self) -> None:
        """On the connection of the grant, and on no other."""
        needed, link = self._replicas.needed(self._server), self._link
        if not needed or link is None:
            return
        questions, answers = self._replicas.questions(needed), list[Any]()
        try:
            link.send(b"".join(pack(words)[0] for words in questions))
            answers += [link.receive() for _ in questions]
        except (RedisError, OSError) as error:
            self._drop()
            answers.append(explain(error, self._endpoint.place, sent=True))
        except BaseException:
            self._drop()
            raise
        if failure := self._replicas.objection(answers, needed, self._endpoint.place):
            raise failure

    def _send(self, words: tuple[str, ...], patience: float | None) -> RawLink:
        """Send the whole call or nothing of it: what fails here has not been carried out. Its last argument
        says which server it goes to.

        A server that was restarted shows itself only now, so a connection that was open before is made anew.
        """
        for fresh in (self._link is None, True):
            link = self._link or self._connect(patience)
            try:
                link.send(pack((*words, self._epochs.told_to(self._server)))[0])
            except (RedisError, OSError) as error:
                self._drop()
                if fresh:
                    raise explain(error, self._endpoint.place, sent=False) from None
            except BaseException:
                self._drop()
                raise
            else:
                return link
        raise AssertionError("the second try is the last")

    def _connect(self, patience: float | None) -> RawLink:
        if self._closed:
            raise StoreError(CLOSED)
        limit = self._timeout if patience is None else min(patience, self._timeout)
        dialled, self._server = opened(self._endpoint, limit)
        self._link = link = RawLink(dialled, self._timeout)
        if self._closed:  # meanwhile
            self._drop()
            raise StoreError(CLOSED)
        return link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _wait(step: Wait, inbox: Inbox | None) -> bool | None:
    if inbox is not None:
        return inbox.wait(step.seconds)
    time.sleep(max(step.seconds, 0.0))
    return None
