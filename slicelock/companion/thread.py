"""The companion: a daemon thread that keeps a party's turns alive, whatever the program does. A process has
one, as long as all its slices are used by the same settings.

It renews everything in one call, wakes whoever waits when a message comes, passes hook commands on,
delivers yields and cancels that Redis has not answered, and tells holders that they have lost. It survives
every error; only the end of the process or `stop()` ends it. Hooks run in a thread of their own
(`HookRunner`), and with Sentinels another one looks for the primary (`PrimaryWatch`).
"""

from __future__ import annotations

import logging
import threading
import time

from slicelock.companion.ear import Ear
from slicelock.companion.hook_runner import HookRunner
from slicelock.companion.schedule import Schedule
from slicelock.errors import SlicelockError, StoreTimeout, StoreUnavailable
from slicelock.keys import Keys
from slicelock.loops import running_loop
from slicelock.protocol import Ledger, Part, Waker, absorb, beat, end_dropped, next_deadline, overdue
from slicelock.protocol.notes import note_loss
from slicelock.settings import Settings
from slicelock.shortage import start
from slicelock.store import Hint, Outage, PrimaryWatch, Store, Subscription

log = logging.getLogger("slicelock")

SHORTEST_CALL_S = 0.05  # a call is given up in time to tell a holder that its lease has ended, but not before
RESTART_S = 0.2
STOP_S = 2.0
HOOK_S = 30.0
"""A hook under way at the end has longer: Python ends threads that outlive it in the middle of a call, and
one that is in PyTorch's C++ code then would take the whole process with it (SIGABRT).
"""


class Companion:
    """Renews for one ledger; listens and delivers for `others` too, which renew for themselves."""

    def __init__(self, settings: Settings, ledger: Ledger, store: Store, *others: Ledger) -> None:
        self.ledger = ledger
        self.on_ready: list[Waker] = []  # woken once the messages are subscribed
        self._ledgers = {each.who.run: each for each in (ledger, *others)}
        self._store, self._timeout = store, settings.store_timeout
        keys = Keys(settings.pool)
        channels = [keys.run_channel(run) for run in self._ledgers]
        subscription = Subscription(settings, channels, beside=store)
        self.ear = Ear(subscription, self._heed, self._waits)
        self._subscription = subscription  # not before: should there be no ear, it goes at once
        self.hooks = HookRunner(self.send_answers, self._held)
        self._watch = PrimaryWatch(settings, self._switch)
        self._schedule, self._outage = Schedule(settings.renew), Outage()
        self._thread: threading.Thread | None = None
        self._stopped = self._hurried = self._answering = self._switched = False
        self._started: object = None
        self._epoch = 0
        self._failure: SlicelockError | None = None  # of the last heartbeat
        self._unsettled = False  # by the last heartbeat that was answered

    # ------------------------------------------------------------ from other threads

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def listening(self) -> bool:
        """Whether messages are subscribed, as far as is known."""
        return self._subscription.is_open

    def ensure_running(self) -> None:
        """Start the thread, or start it again should it ever have ended. The last one started goes on alone:
        an interrupted start may leave one that runs and is not known to."""
        if not self.alive:
            self._started = token = object()
            self._thread = threading.Thread(
                target=self._run, args=(token,), name="slicelock-companion", daemon=True
            )
            start(self._thread)
        self._watch.start()

    def hurry(self) -> None:
        """Send a heartbeat now."""
        self._hurried = True
        self._subscription.wake()

    def send_answers(self) -> None:
        """Send a heartbeat now: a hook has ended, and an agent waits to hear of it."""
        self._answering = True
        self._subscription.wake()

    def _switch(self) -> None:
        """Another primary was found: everything that has failed is tried again now."""
        self._switched = True
        self._subscription.wake()

    def wake(self) -> None:
        """Look at what there is to do now."""
        self._subscription.wake()

    def retire(self) -> None:
        """Begin nothing new; `stop` follows."""
        self._stopped = True
        self._subscription.wake()

    def stop(self) -> None:
        """End the threads and close the connections. What is under way is waited for: calls for 2 s, hooks
        for 30 s, but not by an event loop.
        """
        until = time.monotonic() + STOP_S
        self.retire()
        hooks = self.hooks.stop()
        _join(self._thread, _left(until))
        self._watch.close(_left(until))
        self.ear.close(_left(until))
        # In a loop that this call blocks, a hook may be waiting for that loop.
        if not _join(hooks, HOOK_S if running_loop() is None else _left(until)):
            log.warning("the process ends while a hook is still at work")

    # ------------------------------------------------------------ the thread

    def _run(self, token: object) -> None:
        while not self._stopped and self._started is token:
            try:
                self._round()
            except BaseException:
                log.exception("the companion failed and goes on")
                time.sleep(RESTART_S)

    def _round(self) -> None:
        """One round: what is due, then wait for a message or the next thing that is.

        Turns that were dropped are found here rather than by a callback of their weak reference: Python loses
        an interrupt that hits such a callback.
        """
        if self._switched:
            self._switched = False
            self._schedule.begin_anew()
        end_dropped(self.ledger)
        self._expire()
        self._listen_again()
        if self._stopped:
            return
        self._register()
        self._deliver()
        self._beat()
        if self._stopped:
            return
        try:
            hints = self.ear.listen(self._until_next())
        except SlicelockError as failure:
            log.info("messages stopped: %s", failure)
            self._schedule.listen.succeeded()  # the first try to listen again is at once
        else:
            for hint in hints:
                self._heed(hint)

    def _until_next(self) -> float:
        now, schedule = time.monotonic(), self._schedule
        due = [schedule.beat_at, next_deadline(self.ledger)]
        if not self._subscription.is_open:
            due.append(schedule.listen.at)
        if any(ledger.undelivered for ledger in self._ledgers.values()):
            due.append(schedule.deliver.at)
        return min(max(min(due) - now, 0.0), 3600.0)

    def _patience(self) -> float:
        """How long a call may take, so that no deadline passes meanwhile."""
        left = next_deadline(self.ledger) - time.monotonic()
        return max(min(self._timeout, left), SHORTEST_CALL_S)

    # ------------------------------------------------------------ the kinds of work

    def _expire(self) -> None:
        lost, doubtful = overdue(self.ledger, time.monotonic(), self._why_not_renewed())
        self._tell(lost)
        for part in doubtful:
            log.warning("turn %s is unconfirmed: it was not renewed within its lease; it goes on", part.id)

    def _why_not_renewed(self) -> str:
        """What has kept the last heartbeats from renewing a turn."""
        if isinstance(self._failure, StoreUnavailable | StoreTimeout):
            return "Redis was not reached in time to renew it"
        if self._failure is not None:
            return f"Redis did not renew it: {self._failure}"
        if self._unsettled:
            return "Redis was restarted or failed over, and has not confirmed it in time"
        return "this process did not come to renew it in time; was it stopped, or kept from running?"

    def _listen_again(self) -> None:
        retry, now = self._schedule.listen, time.monotonic()
        if self._subscription.is_open or now < retry.at:
            return
        try:
            self.ear.open(self._patience())
        except SlicelockError as failure:
            if not retry.failures:
                log.info("messages cannot be subscribed: %s", failure)
            retry.failed(time.monotonic())
            return
        retry.succeeded()
        self._schedule.hurry(now)
        self._wake_all()

    def _wake_all(self) -> None:
        ready, self.on_ready = self.on_ready, []
        for inbox in ready:
            inbox.put()
        for ledger in self._ledgers.values():
            for part in list(ledger.open_parts.values()):
                _wake(part)

    def _heed(self, hint: Hint) -> None:
        """Also called by a thread that listens for itself."""
        if hint.verb == "wanted":  # decides nothing: the next regular heartbeat is soon enough to confirm it
            self._note_wanted(hint.what)
            return
        part = self._part(hint.what)
        if part and not part.fences:
            _wake(part)
        elif hint.verb not in ("held", "look"):
            self.hurry()

    def _note_wanted(self, name: str) -> None:
        for part in list(self.ledger.open_parts.values()):
            if part.fences and name in part.slices_left:
                part.wanted = True

    def _waits(self, inbox: object) -> bool:
        """Whether it is that of a part that still waits for its turn."""
        parts = [part for ledger in self._ledgers.values() for part in list(ledger.open_parts.values())]
        return any(part.inbox is inbox and not part.fences for part in parts)

    def _held(self) -> set[str]:
        """The slices of this process's turns; none of turns that are a lease alone, which need no hooks."""
        parts = list(self.ledger.open_parts.values())
        return {name for part in parts if part.fences and not part.agentless for name in part.slices_left}

    def _part(self, request: str) -> Part | None:
        """The open part that a message is about; its flow may have gone on to another number."""
        run, _, rest = request.partition("/")
        ledger = self._ledgers.get(run)
        return ledger.open_parts.get(rest.partition("/")[0]) if ledger else None

    def _register(self) -> None:
        """Redis has forgotten this process, or its hooks have changed."""
        if not (self.ledger.registered and self.ledger.outdated) or self._schedule.beat.failures:
            return
        try:
            self.ledger.learn(self._store.run(self.ledger.register_call(), self._patience()))
        except SlicelockError as failure:
            self.ledger.forgotten()
            self._missed(failure)

    def _deliver(self) -> None:
        retry = self._schedule.deliver
        kept = [(ledger, call) for ledger in self._ledgers.values() for call in list(ledger.undelivered)]
        if not kept or time.monotonic() < retry.at:
            return
        failed = False
        for ledger, call in kept:
            try:
                self._store.run(call, self._patience())
            except SlicelockError as failure:
                log.info("a kept %s is not delivered yet: %s", call.script, failure)
                failed = True
                if isinstance(failure, StoreUnavailable | StoreTimeout):
                    break  # so it would be for the others
            else:
                ledger.delivered(call)
        retry.failed(time.monotonic()) if failed else retry.succeeded()

    def _beat(self) -> None:
        if self._hurried:
            self._hurried = False
            self._schedule.hurry(time.monotonic())
        if self._answering:
            self._answering = False
            self._schedule.at_once(time.monotonic())
        if not self._schedule.beat_due(sent := time.monotonic()):
            return
        sending = beat(self.ledger, list(self.hooks.answers.values()))
        try:
            reply = self._store.run(sending.call, self._patience())
        except SlicelockError as failure:
            self._missed(failure)
            return
        if self._outage.over():
            log.info("Redis answers heartbeats again")
        self._failure = None
        news = absorb(self.ledger, sending, reply, sent)
        self.hooks.taken(sending.answers)
        self._unsettled = news.ask_again
        self._schedule.beaten(time.monotonic(), soon=news.ask_again)
        self._note_epoch(news.epoch)
        self._tell(news.lost)
        for part in news.look:
            _wake(part)
        for command in news.commands:
            self.hooks.submit(command)
        self.hooks.go_on()

    def _missed(self, failure: SlicelockError) -> None:
        self._failure = failure
        if not self._stopped and self._outage.is_news(failure):
            log.warning("a heartbeat was not answered, the next ones follow: %s", failure)
        self._schedule.missed(time.monotonic())

    def _note_epoch(self, epoch: int) -> None:
        if self._epoch and epoch != self._epoch:
            log.warning("Redis was restarted or failed over (epoch %d); turns are confirmed anew", epoch)
        self._epoch = epoch

    def _tell(self, lost: list[Part]) -> None:
        for part in lost:
            note_loss(self.ledger.who, part)
            if owner := part.owner and part.owner():
                try:
                    owner.notice(part)
                except Exception:
                    log.exception("the holder of turn %s could not be told of its loss", part.id)


def _wake(part: Part) -> None:
    if part.inbox is not None:
        part.inbox.put()


def _join(thread: threading.Thread | None, patience: float) -> bool:
    """Whether a thread has ended, within so many seconds; one that asks for its own end need not, nor one
    that could not be started."""
    if thread is None or thread is threading.current_thread() or not thread.is_alive():
        return True
    thread.join(patience)
    return not thread.is_alive()


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.0)
