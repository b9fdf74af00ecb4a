"""Log lines: a word or sentence, and facts as key=value; or one JSON object for each line.

A program that uses slicelock decides by Python's `logging` what it shows of the logger `slicelock`; without a
word from it, warnings and errors. Transitions are one line each, of the level INFO.
"""

from __future__ import annotations

import json
import logging
import re
import time
from enum import StrEnum
from typing import Any

from slicelock.words import clean

PLAIN = re.compile(r"[^\s\"=]+")


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """From which level on lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogLine:
    """A message with facts: `held slice=trainers job=a fence=7`. Facts that are empty are left out.

    `cause`: the error that it tells of, for who tells it in another way.
    """

    __slots__ = ("cause", "facts", "word")

    def __init__(self, word: str, cause: BaseException | None = None, /, **facts: object) -> None:
        self.word, self.cause = word, cause
        self.facts = {name: value for name, value in facts.items() if value not in (None, "", ())}

    def __str__(self) -> str:
        return " ".join([self.word, *(f"{name}={_quoted(value)}" for name, value in self.facts.items())])


def _quoted(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if PLAIN.fullmatch(text) and text.isprintable() else _json(text)


def _json(data: object) -> str:
    """As JSON that may be shown on a terminal: what cannot be printed is escaped."""
    text = json.dumps(data, default=str, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(data, default=str).replace("\x7f", "\\u007f")


class JsonFormatter(logging.Formatter):
    """One JSON object for each line: `time`, `level`, `program`, `message`, and the facts of the line."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        line = record.msg if isinstance(record.msg, LogLine) else LogLine(record.getMessage())
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        told: dict[str, Any] = {"time": f"{clock}.{int(record.msecs):03}Z", "level": record.levelname.lower()}
        told |= {"program": self._program, "message": line.word, **line.facts}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return _json(told)


class TextFormatter(logging.Formatter):
    """One printable line for each message; the lines of an exception follow."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return clean(super().formatMessage(record))


def formatter(program: str, kind: LogFormat) -> logging.Formatter:
    """Formats the lines of a program."""
    return JsonFormatter(program) if kind is LogFormat.JSON else TextFormatter(f"{program}: %(message)s")


def set_up(program: str, level: LogLevel, kind: LogFormat, name: str = "") -> None:
    """Have a logger (the root unless named) write to standard error: lines of this level and above.

    Calling it again replaces what it has set up before.
    """
    logger = logging.getLogger(name)
    for old in logger.handlers[:]:
        if isinstance(old, _Handler):
            logger.removeHandler(old)
    handler = _Handler()
    handler.setFormatter(formatter(program, kind))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = not name


class _Handler(logging.StreamHandler[Any]):
    """Ours, to be known again."""
