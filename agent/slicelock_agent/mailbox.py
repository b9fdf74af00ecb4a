"""Commands to the hooks of processes: one at a time for each process, sent with every beat until answered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slicelock_agent.exchanges import Layout
from slicelock_agent.offers import Word


@dataclass(eq=False, slots=True)
class Order:
    """A command to one process, part of the switch with this fence. `n` is its number, 0 until it is sent.

    `layout`: the page of an exchange that it is part of, laid out for the process while it is under way.
    """

    run: str
    process: str
    fence: int
    what: str
    slice: str
    answer: asyncio.Future[Word] = field(repr=False)
    layout: Layout | None = None
    n: int = 0

    def told(self) -> dict[str, Any]:
        """The command as a beat carries it."""
        names = ("run", "process", "n", "what", "slice")
        return {name: getattr(self, name) for name in names}


class Mailbox:
    """Every command under way. `post` is called when there is something new to send.

    Commands are numbered by fence; where a process has had that number or a higher one, as when it serves
    two slices, the next one is taken, since Redis lets no command replace a newer one.
    """

    def __init__(self) -> None:
        self.post: Callable[[], None] = lambda: None
        self._queues: dict[str, deque[Order]] = {}
        self._newest: dict[str, int] = {}

    def send(
        self, run: str, process: str, fence: int, what: str, name: str, *, layout: Layout | None = None
    ) -> Order:
        """Give a process a command. Its answer is a future; cancelling that withdraws the command."""
        order = Order(run, process, fence, what, name, asyncio.get_running_loop().create_future(), layout)
        order.answer.add_done_callback(lambda _: self._done(order))
        queue = self._queues.setdefault(process, deque())
        queue.append(order)
        if queue[0] is order:
            self._begin(order)
        return order

    def outgoing(self) -> list[dict[str, Any]]:
        """The commands that wait for an answer, for a beat."""
        return [queue[0].told() for queue in self._queues.values()]

    def heard(self, process: str, word: Word) -> None:
        """Take what Redis has for a process. Answers to anything but its present command are old."""
        self._newest[process] = max(self._newest.get(process, 0), word.n)
        queue = self._queues.get(process)
        if not queue or queue[0].answer.done() or not word.outcome:
            return
        if (word.n, word.what) == (queue[0].n, queue[0].what):
            self._answer(queue[0], word)

    def gone(self, process: str) -> None:
        """A process has ended: what it had on a device is gone, and nothing is left to reload."""
        for order in list(self._queues.get(process, ())):
            self._answer(order, Word(order.n, order.what, "done"))
        self._newest.pop(process, None)

    def _answer(self, order: Order, word: Word) -> None:
        if not order.answer.done():
            order.answer.set_result(word)
        self._done(order)

    def _begin(self, order: Order) -> None:
        order.n = max(order.fence, self._newest.get(order.process, 0) + 1)
        self._newest[order.process] = order.n
        if order.layout:
            order.layout.lay_out(order.process, order.n)
        self.post()

    def _done(self, order: Order) -> None:
        queue = self._queues.get(order.process)
        if not queue or order not in queue:
            return
        was_first = queue[0] is order
        queue.remove(order)
        if order.layout and order.n:
            order.layout.take_away(order.process, order.n)
        if not queue:
            del self._queues[order.process]
        elif was_first:
            self._begin(queue[0])
