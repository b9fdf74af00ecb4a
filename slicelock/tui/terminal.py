"""The terminal: keys one by one, a screen of its own, only changes are written, left as it was found."""

from __future__ import annotations

import contextlib
import os
import shutil
import termios
from types import TracebackType
from typing import Self

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"  # the other screen, no cursor, no line breaks by itself
CLEAR = "\x1b[0m\x1b[K"
LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


class Terminal:
    """A context manager; `pause` and `resume` give the terminal back in between."""

    def __init__(self, source: int, target: int) -> None:
        """`source` is read for keys, `target` is written to; both are the terminal."""
        self.source, self._target = source, target
        self._before: list[int | list[bytes | int]] | None = None
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        self.resume()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._target)
            if found.columns and found.lines:
                return found.columns, found.lines
        return shutil.get_terminal_size()

    def resume(self) -> None:
        """Take the terminal. Signals that keys send (Ctrl-C, Ctrl-Z) stay as they are."""
        if self._before is None:
            self._before = termios.tcgetattr(self.source)
        mode = termios.tcgetattr(self.source)
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.source, termios.TCSADRAIN, mode)
        self._write(ENTER)
        self._lines = []

    def pause(self) -> None:
        """Give the terminal back as it was; one that is gone needs nothing."""
        before, self._before = self._before, None
        if before is None:
            return
        with contextlib.suppress(OSError):
            self._write(LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.source, termios.TCSAFLUSH, before)

    def forget(self) -> None:
        """Draw everything anew next time."""
        self._lines = []

    def read(self) -> bytes:
        """What was typed; OSError or nothing when the terminal is gone."""
        return os.read(self.source, 4096)

    def show(self, lines: list[str]) -> None:
        """Bring these lines to the screen: only those that differ are written. A line that does not fill the
        screen ends with CLEAR."""
        parts = [] if self._lines else ["\x1b[H\x1b[2J"]
        for at, line in enumerate(lines):
            if at >= len(self._lines) or self._lines[at] != line:
                parts.append(f"\x1b[{at + 1};1H{line}\x1b[0m")
        if len(lines) < len(self._lines):
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._lines = list(lines)
        if parts:
            self._write("".join(parts))

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(errors="replace"))
        while data:
            data = data[os.write(self._target, data) :]
