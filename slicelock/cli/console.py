"""Where output goes: results to standard output, everything else to standard error; and how a command is
asked to end.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from rich.console import Console, RenderableType
from rich.text import Text

from slicelock import logs
from slicelock.errors import LeaseLost
from slicelock.settings import LogSettings
from slicelock.signals import ending, handled
from slicelock.words import clean

PIPED_WIDTH = 160  # lines for grep should not be folded at a terminal's 80


def show(*renderables: RenderableType) -> None:
    """Print results. Texts are what they say: names with brackets or colons mean nothing more."""
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    for renderable in renderables:
        console.print(renderable)


def show_json(data: object) -> None:
    """Print one JSON object."""
    print(json.dumps(data, indent=2))


def say(line: str) -> None:
    """Tell the user something that is not the result; nothing fails when it cannot be told."""
    with suppress(OSError):
        print("\n".join(map(clean, line.split("\n"))), file=sys.stderr, flush=True)


@contextmanager
def logged() -> Generator[None]:
    """What the client logs is said too, except what becomes the command's own error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter("slicelock", LogSettings.load().log_format))
    handler.addFilter(lambda record: not isinstance(getattr(record.msg, "cause", None), LeaseLost))
    logger = logging.getLogger("slicelock")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def progress() -> Generator[Callable[[str], None]]:
    """A line on a terminal that says what is being done and goes away; nothing elsewhere."""
    console = Console(stderr=True, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda line: None
        return
    with console.status("starting") as status:
        yield lambda line: status.update(Text(line))


@contextmanager
def stopping() -> Generator[Callable[[], bool]]:
    """What asks to end is noted; a question that tells whether it came."""
    came: list[int] = []
    with handled(ending(), lambda number, _: came.append(number)):
        yield lambda: bool(came)
