"""Brings source, view and terminal together: one loop that waits for keys, news, signals and the clock."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from queue import Empty

from slicelock.settings import StoreSettings
from slicelock.signals import ending, handled
from slicelock.tui.keyboard import Keyboard
from slicelock.tui.model import View
from slicelock.tui.paint import Painter
from slicelock.tui.panels import frame
from slicelock.tui.source import Away, Message, Rights, Said, Seen, Source
from slicelock.tui.terminal import CLEAR, Terminal

REDRAW_S = 0.25  # between two drawings at least
CLOCK_S = 1.0  # between two at most, since times go on
ESCAPE_S = 0.05  # an escape that nothing follows for so long is the key
ROWS_EACH, ROWS_BELOW = 3, 28  # of one frame where there is no screen to fill: a slice's, and all others


def view_of(settings: StoreSettings, *, readonly: bool) -> View:
    """A view that has seen nothing yet."""
    return View("Redis", settings.pool, readonly=readonly)


def take(view: View, message: Message, now_s: float) -> None:
    """What the source has told."""
    match message:
        case Seen(picture, events, place):
            view.place = place
            view.take_events(events)
            view.take_picture(picture, now_s)
        case Away(why):
            view.take_failure(why)
        case Rights(may_act):
            view.may_act = may_act
        case Said(text, bad):
            view.tell(text, now_s, bad=bad)


def once(settings: StoreSettings, width: int, height: int | None) -> list[str]:
    """One frame. SlicelockError when Redis does not answer."""
    source = Source(settings, 1.0, readonly=True)
    try:
        seen = source.look()
    finally:
        source.close()
    view, now = view_of(settings, readonly=True), time.monotonic()
    take(view, seen, now)
    painter = Painter(sys.stdout, view.palette)
    rows = height or len(view.slices()) * ROWS_EACH + ROWS_BELOW
    lines = painter.lines(frame(view, now, painter.pen, width, rows)[:-1], width)
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.rstrip() for line in lines]


@contextmanager
def undisturbed() -> Generator[None]:
    """What there is now stays: the garbage collector need not look through it, which holds up a drawing for
    30 ms each time."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class App:
    """The live view. `run` returns the exit code."""

    def __init__(self, settings: StoreSettings, refresh_s: float, *, readonly: bool) -> None:
        self._settings, self._refresh_s = settings, refresh_s
        self._view = view_of(settings, readonly=readonly)
        self._painter = Painter(sys.stdout, self._view.palette)
        self._keyboard = Keyboard()
        self._came: list[int] = []
        self._dirty, self._drawn_s = True, 0.0

    def run(self) -> int:
        """Show the pool until somebody quits: 0, or 128 and the number of the signal that ended it."""
        with ExitStack() as stack:
            wake = stack.enter_context(self._signals())
            readonly = self._view.readonly
            source = Source(self._settings, self._refresh_s, wake.ring, readonly=readonly)
            self._view.place = source.place
            stack.callback(source.close)
            stack.enter_context(undisturbed())
            terminal = stack.enter_context(Terminal(sys.stdin.fileno(), sys.stdout.fileno()))
            source.start()
            with contextlib.suppress(OSError):  # the terminal is gone
                return self._loop(source, terminal, wake)
        return 128 + signal.SIGHUP

    def _loop(self, source: Source, terminal: Terminal, wake: Bell) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(terminal.source, selectors.EVENT_READ)
            selector.register(wake.source, selectors.EVENT_READ)
            while not self._view.quit:
                ready = selector.select(self._patience())
                if any(key.fd == wake.source for key, _ in ready):
                    wake.quiet()
                if ended := self._heed(terminal):
                    return ended
                if any(key.fd == terminal.source for key, _ in ready):
                    self._type(source, terminal.read())
                elif self._keyboard.waits:
                    self._press(source, self._keyboard.flush())
                self._hear(source)
                self._draw(terminal)
        return 0

    # ------------------------------------------------------------ what comes in

    def _heed(self, terminal: Terminal) -> int:
        """Signals; the exit code when one of them ends the view."""
        while self._came:
            number = self._came.pop(0)
            if number == signal.SIGINT:
                self._view.quit = True
            elif number in (signal.SIGTERM, signal.SIGHUP):
                return 128 + number
            elif number == signal.SIGTSTP:
                terminal.pause()
                _stop()
                terminal.resume()
            elif number == signal.SIGCONT:
                terminal.resume()
            self._dirty = True
            if number == signal.SIGWINCH:
                terminal.forget()
        return 0

    def _type(self, source: Source, data: bytes) -> None:
        if not data:
            raise OSError("the terminal is gone")
        self._press(source, self._keyboard.feed(data))

    def _press(self, source: Source, keys: list[str]) -> None:
        for key in keys:
            if intent := self._view.press(key, time.monotonic()):
                source.ask(intent)
            self._dirty = True
        source.focus = self._view.selected

    def _hear(self, source: Source) -> None:
        with contextlib.suppress(Empty):
            while True:
                take(self._view, source.inbox.get_nowait(), time.monotonic())
                self._dirty = True

    # ------------------------------------------------------------ what goes out

    def _patience(self) -> float:
        """Seconds until there may be something to draw."""
        since = time.monotonic() - self._drawn_s
        wait = max(0.0, (REDRAW_S if self._dirty else CLOCK_S) - since)
        return min(wait, ESCAPE_S) if self._keyboard.waits else wait

    def _draw(self, terminal: Terminal) -> None:
        now = time.monotonic()
        if now - self._drawn_s < (REDRAW_S if self._dirty else CLOCK_S):
            return
        if self._view.redraw:
            self._view.redraw = False
            terminal.forget()
        width, height = terminal.size
        drawn = frame(self._view, now, self._painter.pen, width, height)
        lines = zip(drawn, self._painter.lines(drawn, width), strict=True)
        # After the last column this would remove what is there.
        terminal.show([text if line.cell_len >= width else text + CLEAR for line, text in lines])
        self._dirty, self._drawn_s = False, now

    @contextmanager
    def _signals(self) -> Generator[Bell]:
        """Signals are noted, and ring the bell; afterwards all is as it was."""
        numbers = (*ending(), signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
        with closing(Bell()) as bell, handled(numbers, lambda number, _: self._came.append(number)):
            old = signal.set_wakeup_fd(bell.target, warn_on_full_buffer=False)
            try:
                yield bell
            finally:
                signal.set_wakeup_fd(old)


def _stop() -> None:
    """Stop as Ctrl-Z stops a program, until somebody lets it go on."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, handler)


class Bell:
    """A pipe that wakes the loop, from a thread or a signal."""

    def __init__(self) -> None:
        self.source, self.target = os.pipe()
        os.set_blocking(self.source, False)
        os.set_blocking(self.target, False)

    def ring(self) -> None:
        """Wake the loop; one that is gone or awake already needs no more."""
        with contextlib.suppress(OSError):
            os.write(self.target, b"!")

    def quiet(self) -> None:
        """Take note."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.source, 4096):
                pass

    def close(self) -> None:
        os.close(self.source)
        os.close(self.target)
