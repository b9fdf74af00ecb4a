"""What `slicelock top` asks and draws while far more happens than anybody can look at."""

from __future__ import annotations

import os
import pty
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import redis

from slicelock.settings import StoreSettings
from slicelock.tui import app
from slicelock.tui.terminal import Terminal
from tests.support.scripts import connect
from tests.support.wait import wait_until
from tests.support.world import World

pytestmark = pytest.mark.one_server

REFRESH_S = 0.5
EACH = 100  # events at once
DRAWINGS, LOOKS = 6, 4


class Counted(Terminal):
    """Counts what is shown."""

    shown = 0

    def show(self, lines: list[str]) -> None:
        Counted.shown += 1
        super().show(lines)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """This process has a terminal of its own, which somebody reads; types text into it."""
    ours, theirs = pty.openpty()
    with ExitStack() as stack:
        stack.callback(os.close, ours)
        made = [stack.enter_context(os.fdopen(os.dup(theirs), mode)) for mode in ("r", "w")]
        os.close(theirs)
        for name, file in zip(("stdin", "stdout"), made, strict=True):
            monkeypatch.setattr(sys, name, file)
        reader = threading.Thread(target=_read, args=(ours,), daemon=True)
        reader.start()
        yield lambda text: _write(ours, text)
        for file in made:
            file.close()
        reader.join()


def _read(fd: int) -> None:
    try:
        while os.read(fd, 65_536):
            pass
    except OSError:  # nobody has it open any more
        pass


def _write(fd: int, text: str) -> None:
    os.write(fd, text.encode())


def calls(client: redis.Redis) -> dict[str, int]:
    """How often each command was called."""
    told = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): its["calls"] for name, its in told.items()}  # type: ignore


def test_four_drawings_a_second_and_one_question_a_refresh_under_a_flood(
    slicelock_env: dict[str, str], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events by the thousand and keys without end: the numbers of drawings and questions follow the clock."""
    world.declare("s")
    settings, key, told = StoreSettings.load(), world.scripts.keys.events, 0
    monkeypatch.setattr(app, "Terminal", Counted)
    monkeypatch.setattr(Counted, "shown", 0)
    made = app.App(settings, REFRESH_S, readonly=True)

    def flood() -> None:
        nonlocal told
        with connect(slicelock_env["SLICELOCK_REDIS_URL"]) as client:
            wait_until(lambda: Counted.shown > 0)
            while Counted.shown < DRAWINGS or questions(client) < LOOKS:
                with client.pipeline(transaction=False) as pipe:
                    for _ in range(EACH):
                        told += 1
                        pipe.xadd(key, {"type": "clock", "t": str(int(time.time() * 1000)), "step_ms": "1"})
                    pipe.execute()
                press("jk")
            press("q")

    def questions(client: redis.Redis) -> int:
        return calls(client).get("evalsha", 0) - before.get("evalsha", 0)

    with connect(slicelock_env["SLICELOCK_REDIS_URL"]) as client, terminal(monkeypatch) as press:
        before, begun = calls(client), time.monotonic()
        crowd = threading.Thread(target=flood, daemon=True)
        crowd.start()
        assert made.run() == 0
        seconds = time.monotonic() - begun
        crowd.join()
        asked, drawn = questions(client), Counted.shown
    assert drawn >= DRAWINGS and asked >= LOOKS and told > 10 * EACH, "there was a flood, and somebody looked"
    assert drawn <= seconds / app.REDRAW_S + 1 and app.REDRAW_S >= 0.25
    assert asked <= seconds / REFRESH_S + 2, "one at a time, and one more if the script was not known"
