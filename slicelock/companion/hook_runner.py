"""Runs the hooks that this process offers, on a thread of its own, so that heartbeats go on meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, cast, runtime_checkable

from slicelock.errors import NotGranted, StoreUnavailable, TurnError
from slicelock.exchange_place import page_of
from slicelock.identity import ProcessIdentity
from slicelock.protocol import HookAnswer, HookCommand
from slicelock.shortage import start
from slicelock.words import clean

log = logging.getLogger("slicelock")

LOOP_LOOK_S = 1.0  # between two looks whether an event loop still runs
REASON_LENGTH = 1000  # it is told and stored; the log has all of it
MOST_BYTES = 1 << 60  # more cannot be told: numbers in Lua are doubles
LOADED, OFFLOADED, UNSURE = "loaded", "offloaded", "unsure"

serving: ContextVar[str] = ContextVar("slicelock_serving", default="")
"""In a hook: the slice for whose next turn it is at work."""


@runtime_checkable
class Hook(Protocol):
    """Any object with these methods, plain or coroutine functions; both may return the bytes they moved.

    One with a true `overlaps` has plain ones that also take `exchange`: the path of the page over which it
    changes places with another run, block by block.
    """

    def offload(self) -> object:
        """Move the device state to host memory and free the device."""
        ...

    def reload(self) -> object:
        """Bring back what `offload` moved."""
        ...


@dataclass(eq=False, slots=True)
class Offer:
    """A hook, the slices it serves (empty: all of this process's), and the loop for its coroutines.

    `away`: the slices for whose other runs it has made way. It moves all of its state or nothing, so that
    this comes back when the last of them is this run's again.
    """

    hook: Hook
    slices: tuple[str, ...]
    loop: asyncio.AbstractEventLoop | None
    state: str = LOADED
    away: set[str] = field(default_factory=set[str])

    def serves(self, name: str) -> bool:
        return not self.slices or name in self.slices

    def described(self) -> dict[str, Any]:
        """What agents are told of it."""
        return {
            "name": type(self.hook).__name__,
            "slices": list(self.slices),
            "self": bool(getattr(self.hook, "moves_itself", False)),
            "residue": int(getattr(self.hook, "residue_bytes", 0)),
            "overlaps": bool(getattr(self.hook, "overlaps", False)),
        }


class HookRunner:
    """Takes commands in order, one at a time; `answered` is called on its thread after each.

    An `offload` of what is offloaded already does nothing, and neither does a `reload` of what nobody has
    touched, or what is still away for another slice. After a failure a `reload` runs. `held` tells the slices
    of this process's turns.
    """

    def __init__(self, answered: Callable[[], None], held: Callable[[], Collection[str]] = tuple) -> None:
        self.offers: list[Offer] = []
        self.answers: dict[tuple[str, str], HookAnswer] = {}  # until Redis has taken them
        self._answered, self._held = answered, held
        self._accepted: set[tuple[str, str]] = set()
        self._queue: SimpleQueue[HookCommand | Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False
        # Over what is decided, not over what is done. A signal handler may come to it in the middle.
        self._lock = threading.RLock()

    def offer(self, offer: Offer) -> None:
        """Have one more hook. The same object again stays one: it serves the slices of both, on the newer
        loop."""
        known = next((one for one in self.offers if one.hook is offer.hook), None)
        if known is None:
            self.offers.append(offer)
            return
        both = dict.fromkeys((*known.slices, *offer.slices))
        known.slices = tuple(both) if known.slices and offer.slices else ()
        known.loop = offer.loop or known.loop

    def submit(self, command: HookCommand) -> None:
        """Run a command, unless it is under way or has been answered already."""
        key = _key(command)
        if key not in self._accepted and key not in self.answers:
            self._accepted.add(key)
            self._queue.put(command)
        self.go_on()

    def check_back(self, slices: Collection[str]) -> None:
        """Raise NotGranted for a turn on these slices that begins while the state of a hook is away: it
        serves another slice too, for whose next run it has made way."""
        with self._lock:
            ours = [offer for offer in self.offers if any(map(offer.serves, slices))]
            away = next((type(offer.hook).__name__ for offer in ours if offer.state != LOADED), "")
        if away:
            raise NotGranted(
                f"No turn on {' '.join(slices)}: {away} has not brought its state back.",
                advice="Take turns on all it serves, or register(…, slices=…) a hook for each slice.",
            )

    def call(self, work: Callable[[], None]) -> None:
        """Run a user's callback on this thread."""
        self._queue.put(work)
        self.go_on()

    def taken(self, answers: tuple[HookAnswer, ...]) -> None:
        """Redis has these answers."""
        for answer in answers:
            self.answers.pop(_key(answer), None)

    def stop(self) -> threading.Thread | None:
        """End after what is under way; the thread to wait for."""
        with self._lock:
            self._stopped = True
            if self._thread is not None:
                self._queue.put(None)
            return self._thread

    def go_on(self) -> None:
        """Have a thread for what waits. There may be none to be had; then this is to be called again."""
        with self._lock:
            started = self._thread is not None and self._thread.is_alive()
            if self._stopped or started or self._queue.empty():
                return
            self._thread = threading.Thread(target=self._run, name="slicelock-hooks", daemon=True)
            try:
                start(self._thread)
            except StoreUnavailable as failure:
                log.error("hooks and callbacks have to wait: %s", failure)  # noqa: TRY400 - it says it all

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                item() if callable(item) else self._obey(item)
            except BaseException:
                log.exception("a callback failed")

    def _obey(self, command: HookCommand) -> None:
        begun = time.monotonic()
        try:
            page = page_of(str(ProcessIdentity.of()), int(command["n"]))
            moved, reason = self._run_hooks(command["what"], command["slice"], page)
        except BaseException as failure:  # an agent waits for the answer
            log.exception("a command could not be carried out: %r", command)
            moved, reason = 0, _reason(failure)
        self.answers[_key(command)] = {
            "n": command["n"],
            "what": command["what"],
            "slice": command.get("slice", ""),
            "outcome": "failed" if reason else "done",
            "reason": reason,
            "bytes": moved,
            "seconds": round(time.monotonic() - begun, 6),
        }
        self._accepted.discard(_key(command))
        self._answered()

    def _run_hooks(self, what: str, name: str, page: Path | None) -> tuple[int, str]:
        """Bytes moved, and why it failed, if it did. `page`: over which it exchanges the device with another
        run, if the agent has laid one out."""
        offers = [offer for offer in self.offers if offer.serves(name)]
        verb = self._offload if what == "offload" else _reload
        moved = 0
        for offer in offers if what == "offload" else reversed(offers):
            before = serving.set(name)  # in this thread, and in the tasks that it gives to event loops
            try:
                moved += verb(offer, name, page)
            except BaseException as failure:
                log.exception("%s of %s for %s failed", what, type(offer.hook).__name__, name)
                return moved, f"{type(offer.hook).__name__}.{what}: {_reason(failure)}"
            finally:
                serving.reset(before)
        return moved, ""

    def _offload(self, offer: Offer, name: str, page: Path | None) -> int:
        moved = 0
        if offer.state != OFFLOADED:
            with self._lock:  # a turn that begins now is seen here, or sees it
                used = [one for one in self._held() if one != name and offer.serves(one)]
                offer.state = offer.state if used else UNSURE
            if used:
                raise TurnError(
                    f"It serves {used[0]} too, where this run has its turn.",
                    advice=f"Register a hook for each slice: register(…, slices={name!r}).",
                )
            moved = _move(offer, "offload", page)
            offer.state = OFFLOADED
        offer.away.add(name)
        return moved


def _reload(offer: Offer, name: str, page: Path | None) -> int:
    offer.away.discard(name)
    if offer.away or offer.state == LOADED:
        return 0
    offer.state = UNSURE
    moved = _move(offer, "reload", page)
    offer.state = LOADED
    return moved


def _reason(failure: BaseException) -> str:
    """In one line: those of CUDA and PyTorch have several, and a reason is told among other things. Whatever
    is in it can be told: a heartbeat that Redis cannot read would be this process's last."""
    text = clean(" ".join(f"{type(failure).__name__}: {failure}".split()))
    return text if len(text) <= REASON_LENGTH else f"{text[:REASON_LENGTH]}…"


def _key(command: HookCommand) -> tuple[str, str]:
    return str(command["n"]), str(command["what"])


def _move(offer: Offer, what: str, page: Path | None) -> int:
    method = getattr(offer.hook, what)
    if page is not None and getattr(offer.hook, "overlaps", False):
        result = method(exchange=page)
    elif inspect.iscoroutinefunction(method):
        result = _on_loop(offer, method)
    else:
        result = method()
        if inspect.isawaitable(result):
            result = _on_loop(offer, lambda: _awaited(cast(Awaitable[Any], result)))
    return min(max(result, 0), MOST_BYTES) if isinstance(result, int) else 0


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _on_loop(offer: Offer, method: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    loop = _running(offer)
    work = asyncio.run_coroutine_threadsafe(method(), loop)
    while True:
        try:
            return work.result(LOOP_LOOK_S)
        except TimeoutError:
            if work.done():
                return work.result()  # it has ended by now, or the error is its own
            _running(offer, work)


def _running(offer: Offer, work: Future[Any] | None = None) -> asyncio.AbstractEventLoop:
    """The loop for its coroutines. One that runs no more would never end what it was given."""
    if offer.loop is not None and offer.loop.is_running():
        return offer.loop
    if work is not None:
        work.cancel()
    raise RuntimeError("the event loop that registered it does not run; register it from one that does")
