"""Looks at the pages of exchanges that agents of this user have laid out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slicelock.exchange import Exchange, Progress
from slicelock.exchange_place import folder_of
from tests.support.wait import wait_until


def pages(*agents: int) -> list[Path]:
    """The pages that there are now of these agents; other tests have agents of their own."""
    folder = folder_of(os.geteuid(), os.geteuid())
    return [page for pid in agents for page in folder.glob(f"page-*-{pid}-*") if _is_written(page)]


def _is_written(page: Path) -> bool:
    try:
        return page.stat().st_size > 0
    except FileNotFoundError:
        return False


class Watch:
    """The page of an agent's next exchange, for one device."""

    def __init__(self, agent: int) -> None:
        self.page = Exchange(wait_until(lambda: pages(agent), 30, "an exchange")[0])
        (self._key,) = self.page.keys

    def until(self, what: Callable[[Progress], bool]) -> Progress:
        return wait_until(lambda: what(self.now) and self.now, 30, "the exchange goes on")

    @property
    def now(self) -> Progress:
        return self.page.progress(self._key)


@contextmanager
def watching(agent: Callable[[], int]) -> Iterator[Callable[[], Watch]]:
    """Waits for an exchange of the agent with this pid, and looks at it; closes what it has opened."""
    with ExitStack() as opened:

        def begin() -> Watch:
            made = Watch(agent())
            opened.callback(made.page.close)
            return made

        yield begin
