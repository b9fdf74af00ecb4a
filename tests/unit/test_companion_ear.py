"""Who hears the messages: one thread at a time, and never nobody for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slicelock.companion.ear import LENT_S, Ear
from slicelock.companion.inbox import ThreadInbox
from slicelock.errors import StoreTimeout
from slicelock.settings import StoreSettings
from slicelock.store import Bell, Hint, Subscription
from tests.support.wait import wait_until


class Messages:
    """A subscription: hears what the test says; `listener` is the thread that listens."""

    def __init__(self) -> None:
        self.is_open = True
        self.listener = ""
        self.heard_by: list[str] = []
        self._said: list[Hint | BaseException] = []
        self._moved = threading.Condition()
        self._bells: dict[Any, bool] = {}

    def say(self, *said: Hint | BaseException) -> None:
        with self._moved:
            self._said += said
            self._moved.notify_all()

    def listen(self, seconds: float, bell: Bell | None = None) -> list[Hint]:
        name = threading.current_thread().name
        assert not self.listener, "two listen at once"
        try:
            with self._moved:
                self.listener = name
                self._moved.wait_for(lambda: self._said or self._rung(bell) or not self.is_open, seconds)
                said, self._said = self._said, []
        finally:
            self.listener = ""
        hints: list[Hint] = []
        for one in said:
            if isinstance(one, BaseException):
                raise one
            self.heard_by.append(name)
            hints.append(one)
        return hints

    def rest(self, seconds: float) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self._rung(None), seconds)

    def wake(self) -> None:
        self.ring(None)

    def ring(self, bell: object) -> None:
        with self._moved:
            self._bells[bell] = True
            self._moved.notify_all()

    def open(self, patience: float) -> None:
        self.is_open = True

    def drop(self) -> None:
        self.is_open = False

    def close(self) -> None:
        self.drop()

    def _rung(self, bell: object) -> bool:
        return self._bells.pop(bell, False)


class World:
    """An ear with a companion that listens all the time."""

    def __init__(self) -> None:
        self.messages, self.waiting = Messages(), list[object]()
        self.heeded: list[Hint] = []
        self.ear = Ear(self.messages, self._heed, lambda one: one in self.waiting)  # type: ignore[arg-type]
        self.ear._bell.ring = lambda: self.messages.ring(self.ear._bell)  # type: ignore[method-assign]
        self.inboxes: dict[str, ThreadInbox] = {}
        self._ended, self.rounds = False, 0
        self.companion = threading.Thread(target=self._listen, name="companion")
        self.companion.start()
        wait_until(lambda: self.messages.listener == "companion")

    def _listen(self) -> None:
        while not self._ended:
            self.rounds += 1
            try:
                for hint in self.ear.listen(60.0):
                    self._heed(hint)
            except StoreTimeout:
                self.ear.open(1.0)

    def _heed(self, hint: Hint) -> None:
        self.heeded.append(hint)
        if inbox := self.inboxes.get(hint.what):
            inbox.put()

    def wait(
        self, name: str, then: Callable[[ThreadInbox, bool], None], seconds: float = 30.0
    ) -> threading.Thread:
        """Have a thread wait as a flow does."""

        def work() -> None:
            inbox = self.inboxes[name] = ThreadInbox(self.ear)
            self.waiting.append(inbox)
            try:
                then(inbox, inbox.wait(seconds))
            finally:
                self.waiting.remove(inbox)
                inbox.close()

        thread = threading.Thread(target=work, name=name)
        thread.start()
        return thread

    def end(self) -> None:
        self._ended = True
        self.messages.wake()
        self.companion.join()
        self.ear.close(1.0)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.end()


def test_who_waits_hears_for_itself_and_the_companion_afterwards(world: World) -> None:
    answers: list[bool] = []
    thread = world.wait("a", lambda _, heard: answers.append(heard))
    wait_until(lambda: world.messages.listener == "a")
    world.messages.say(Hint("c", "held", "a"))
    thread.join()
    wait_until(lambda: world.messages.listener == "companion")
    world.messages.say(Hint("c", "lost", "x"))
    wait_until(lambda: len(world.heeded) == 2)
    assert (answers, world.messages.heard_by) == ([True], ["a", "companion"])


def test_a_second_one_is_woken_by_the_first(world: World) -> None:
    answers: list[str] = []
    first = world.wait("a", lambda *_: answers.append("a"))
    wait_until(lambda: world.messages.listener == "a")
    second = world.wait("b", lambda *_: answers.append("b"))
    wait_until(lambda: "b" in world.inboxes)
    world.messages.say(Hint("c", "held", "b"))
    second.join()
    assert answers == ["b"]
    world.messages.say(Hint("c", "held", "a"))
    first.join()
    assert world.messages.heard_by == ["a", "a"]


def test_who_waits_is_also_woken_by_others(world: World) -> None:
    thread = world.wait("a", lambda *_: None)
    wait_until(lambda: world.messages.listener == "a")
    world.inboxes["a"].put()
    thread.join()


def test_waiting_ends_in_time(world: World) -> None:
    answers: list[bool] = []
    world.wait("a", lambda _, heard: answers.append(heard), 0.05).join()
    assert answers == [False]


def test_the_companion_listens_while_who_waits_is_busy(world: World) -> None:
    go_on = threading.Event()
    thread = world.wait("a", lambda *_: assert_set(go_on))
    wait_until(lambda: world.messages.listener == "a")
    world.messages.say(Hint("c", "held", "a"))
    wait_until(lambda: world.messages.heard_by == ["a"])
    world.messages.say(Hint("c", "lost", "x"))
    wait_until(lambda: world.messages.heard_by == ["a", "companion"], LENT_S + 2)
    go_on.set()
    thread.join()


def assert_set(event: threading.Event) -> None:
    assert event.wait(10)


def test_one_that_hears_though_the_ear_was_taken_back_holds_the_companion_up_for_a_moment(
    world: World,
) -> None:
    """Heartbeats are the companion's too. Two had given the ear back, and one between them took it."""
    thread = world.wait("a", lambda *_: None)
    wait_until(lambda: world.messages.listener == "a")
    world.ear._lent.clear()
    before = world.rounds
    wait_until(lambda: world.rounds > before + 2)
    assert world.messages.listener == "a"
    world.messages.say(Hint("c", "held", "a"))
    thread.join()


def test_one_that_ended_unseen_is_noticed(world: World) -> None:
    gone = ThreadInbox(world.ear)
    world.ear._lent["to"] = gone
    world.messages.wake()
    wait_until(lambda: not world.ear._lent, LENT_S + 2)
    wait_until(lambda: world.messages.listener == "companion")


def test_a_lost_connection_leaves_the_waiting_to_the_companion(world: World) -> None:
    answers: list[bool] = []
    thread = world.wait("a", lambda _, heard: answers.append(heard))
    wait_until(lambda: world.messages.listener == "a")
    world.messages.say(StoreTimeout("lost"))
    wait_until(lambda: world.messages.listener == "companion")
    world.messages.say(Hint("c", "held", "a"))
    thread.join()
    assert (answers, world.messages.heard_by) == ([True], ["companion"])


def test_after_an_interrupt_the_connection_is_made_anew(world: World) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        inbox = ThreadInbox(world.ear)
        world.waiting.append(inbox)
        try:
            inbox.wait(30.0)
        except KeyboardInterrupt as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name="a")
    thread.start()
    wait_until(lambda: world.messages.listener == "a")
    world.messages.say(KeyboardInterrupt())
    thread.join()
    assert failures and not world.messages.is_open
    assert world.ear._listening is None and not world.ear._lock.locked()
    world.messages.open(1.0)


def test_closing_ends_the_listening_but_not_the_waiting() -> None:
    world = World()
    answers: list[bool] = []
    thread = world.wait("a", lambda _, heard: answers.append(heard))
    wait_until(lambda: world.messages.listener == "a")
    begun = time.monotonic()
    world.end()
    assert time.monotonic() - begun < 1.0
    world.inboxes["a"].put()
    thread.join()
    assert answers == [True]


def test_what_is_closed_is_not_listened_to_nor_opened_again() -> None:
    """The companion may be late: it was joined for a while only."""
    subscription = Subscription(StoreSettings.load(redis_url="redis://127.0.0.1:1"), ["c"])
    ear = Ear(subscription, lambda hint: None, lambda one: False)
    ear.close(1.0)
    assert ear.listen(5.0) == []
    ear.open(1.0)  # would fail
    assert subscription.listen(5.0) == []
    subscription.rest(5.0)


def test_what_is_closed_while_it_is_opened_does_not_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = Messages()
    ear = Ear(messages, lambda hint: None, lambda one: False)  # type: ignore[arg-type]
    slow = messages.open

    def opened(patience: float) -> None:
        ear.close(0.0)
        slow(patience)

    monkeypatch.setattr(messages, "open", opened)
    ear.open(1.0)
    assert not messages.is_open
