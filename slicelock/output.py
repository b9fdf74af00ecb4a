"""The program's standard streams: what becomes of output that nobody takes, in both programs."""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import signal
import sys

from slicelock.errors import SlicelockError

UNREAD = 128 + signal.SIGPIPE
"""The exit code where output is read no further, as of a program that dies of it."""


class OutputLost(SlicelockError):
    """Standard output cannot be written."""

    unread = False
    """Because its reader has seen enough and is gone: nobody is to be told, and the exit code is UNREAD."""


PLAIN = {"…": "...", "→": "->", "·": "|", "≤": "<=", "≥": ">=", "–": "-", "−": "-", "×": "x"}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What is shown of signs that an encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    shown = (PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in signs)
    return "".join(shown), error.end


codecs.register_error("slicelock", _plain)


class Output(io.TextIOWrapper):
    """Standard output, of any encoding. When it cannot be written, OutputLost is raised once, and what
    follows is dropped.
    """

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._lost(error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._lost(error) from None

    def check(self) -> None:
        """OutputLost when its reader is gone: who has nothing to write for long learns it in no other way."""
        look = select.poll()
        look.register(self.fileno(), 0)
        if any(event & select.POLLERR for _, event in look.poll(0)):
            raise self._lost(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))

    def _lost(self, error: OSError) -> OutputLost:
        # What is still buffered would be written at the interpreter's end, and fail again.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        lost = OutputLost(f"Standard output cannot be written: {error.strerror or error}.")
        lost.unread = isinstance(error, BrokenPipeError)
        return lost


def prepare() -> None:
    """Take over standard output. Streams that were closed take everything and give nothing; programs that are
    started still find them closed.
    """
    if (out := sys.stdout) is not None:
        raw = io.BufferedWriter(io.FileIO(out.fileno(), "w", closefd=False))
        errors = out.errors if codecs.lookup(out.encoding).name == "utf-8" else "slicelock"
        sys.stdout = Output(raw, out.encoding, errors, line_buffering=out.isatty())
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - it gets the lowest free number
