"""Looks at the pages of exchanges that an agent of this user has laid out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from slicelock.exchange import Exchange, Progress
from slicelock.exchange_place import folder_of
from tests.support.wait import wait_until


def pages() -> list[Path]:
    """The pages that there are now."""
    return list(folder_of(os.geteuid(), os.geteuid()).glob("page-*"))


class Watch:
    """The page of the next exchange, for one device."""

    def __init__(self) -> None:
        self.page = Exchange(wait_until(pages, 30, "an exchange")[0])
        (self._key,) = self.page.keys

    def until(self, what: Callable[[Progress], bool]) -> Progress:
        return wait_until(lambda: what(self.now) and self.now, 30, "the exchange goes on")

    @property
    def now(self) -> Progress:
        return self.page.progress(self._key)


@contextmanager
def watching() -> Iterator[Callable[[], Watch]]:
    """Waits for an exchange to begin, and looks at it; closes what it has opened."""
    with ExitStack() as opened:

        def begin() -> Watch:
            made = Watch()
            opened.callback(made.page.close)
            return made

        yield begin
