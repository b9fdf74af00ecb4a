"""Log lines: facts as key=value, or JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from slicelock.errors import LeaseLost
from slicelock.logs import JsonFormatter, Line, LogFormat, LogLevel, formatter, set_up


def record(message: object, *args: object, trouble: bool = False) -> logging.LogRecord:
    info = None
    if trouble:
        try:
            int("no")
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("slicelock", logging.INFO, "x.py", 1, message, args, info)


def test_facts_follow_the_word() -> None:
    line = Line("held", slice="s,t", job="a", fence=7, waited_s=1.23456789, moved=False, phase="", k=None)
    assert str(line) == "held slice=s,t job=a fence=7 waited_s=1.23457 moved=False"


def test_values_that_could_be_misread_are_quoted() -> None:
    assert str(Line("lost", reason='no "word" of it', node="a=b")) == (
        'lost reason="no \\"word\\" of it" node="a=b"'
    )


def test_json_has_the_facts_as_they_are() -> None:
    told = json.loads(JsonFormatter("slicelock").format(record(Line("held", fence=7, reason="it's"))))
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "info",
        "program": "slicelock",
        "message": "held",
        "fence": 7,
        "reason": "it's",
    }


def test_json_of_a_sentence_and_of_an_exception() -> None:
    told = json.loads(JsonFormatter("agent").format(record("waited for %s", "n1", trouble=True)))
    assert told["message"] == "waited for n1"
    assert "ValueError: invalid literal" in told["exception"]


def test_a_line_may_tell_of_an_error() -> None:
    failure = LeaseLost("gone")
    assert Line(str(failure), failure, slice="s").cause is failure


@pytest.fixture
def logger() -> Iterator[str]:
    yield "slicelock.test"
    set_up("x", LogLevel.ERROR, LogFormat.TEXT, "slicelock.test")
    logging.getLogger("slicelock.test").handlers.clear()


def test_setting_up_twice_writes_once(logger: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up("first", LogLevel.DEBUG, LogFormat.TEXT, logger)
    set_up("second", LogLevel.INFO, LogFormat.TEXT, logger)
    logging.getLogger(logger).debug("too small")
    logging.getLogger(logger).info(Line("held", slice="s"))
    assert capsys.readouterr().err == "second: held slice=s\n"


WILD = "x\x1b]0;PWNED\x07\x7f\x9b\u202e"


def test_nothing_that_a_terminal_would_obey_gets_into_a_line() -> None:
    assert str(Line("lost", reason=WILD)) == r'lost reason="x\u001b]0;PWNED\u0007\u007f\u009b\u202e"'
    text = formatter("x", LogFormat.TEXT).format(record("lost %s\nagain", WILD))
    assert text.isprintable() and text.startswith("x: lost x␛]0;PWNED␇") and text.endswith(" again")
    told = formatter("x", LogFormat.JSON).format(record(Line("lost", reason=WILD)))
    assert told.isprintable() and json.loads(told)["reason"] == WILD


def test_an_exception_keeps_its_lines() -> None:
    lines = formatter("x", LogFormat.TEXT).format(record("failed", trouble=True)).splitlines()
    assert lines[:2] == ["x: failed", "Traceback (most recent call last):"]
