"""Log lines: facts as key=value, or JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest
from slicelock_agent.result import VERBS, Result

from slicelock.errors import LeaseLost
from slicelock.logs import JsonFormatter, LogFormat, LogLevel, LogLine, formatter, set_up
from slicelock.protocol.ledger import Part, Who, Wish
from slicelock.protocol.notes import note
from tests.support.docs import ROOT


def record(message: object, *args: object, trouble: bool = False) -> logging.LogRecord:
    info = None
    if trouble:
        try:
            int("no")
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("slicelock", logging.INFO, "x.py", 1, message, args, info)


def test_facts_follow_the_word() -> None:
    line = LogLine("held", slice="s,t", job="a", fence=7, waited_s=1.23456789, moved=False, phase="", k=None)
    assert str(line) == "held slice=s,t job=a fence=7 waited_s=1.23457 moved=False"


def test_values_that_could_be_misread_are_quoted() -> None:
    assert str(LogLine("lost", reason='no "word" of it', node="a=b")) == (
        'lost reason="no \\"word\\" of it" node="a=b"'
    )


def test_json_has_the_facts_as_they_are() -> None:
    told = json.loads(JsonFormatter("slicelock").format(record(LogLine("held", fence=7, reason="it's"))))
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
    assert LogLine(str(failure), failure, slice="s").cause is failure


@pytest.fixture
def logger() -> Iterator[str]:
    yield "slicelock.test"
    set_up("x", LogLevel.ERROR, LogFormat.TEXT, "slicelock.test")
    logging.getLogger("slicelock.test").handlers.clear()


def test_setting_up_twice_writes_once(logger: str, capsys: pytest.CaptureFixture[str]) -> None:
    set_up("first", LogLevel.DEBUG, LogFormat.TEXT, logger)
    set_up("second", LogLevel.INFO, LogFormat.TEXT, logger)
    logging.getLogger(logger).debug("too small")
    logging.getLogger(logger).info(LogLine("held", slice="s"))
    assert capsys.readouterr().err == "second: held slice=s\n"


WILD = "x\x1b]0;PWNED\x07\x7f\x9b\u202e"


def test_nothing_that_a_terminal_would_obey_gets_into_a_line() -> None:
    assert str(LogLine("lost", reason=WILD)) == r'lost reason="x\u001b]0;PWNED\u0007\u007f\u009b\u202e"'
    text = formatter("x", LogFormat.TEXT).format(record("lost %s\nagain", WILD))
    assert text.isprintable() and text.startswith("x: lost x␛]0;PWNED␇") and text.endswith(" again")
    told = formatter("x", LogFormat.JSON).format(record(LogLine("lost", reason=WILD)))
    assert told.isprintable() and json.loads(told)["reason"] == WILD


def test_an_exception_keeps_its_lines() -> None:
    lines = formatter("x", LogFormat.TEXT).format(record("failed", trouble=True)).splitlines()
    assert lines[:2] == ["x: failed", "Traceback (most recent call last):"]


# ---------------------------------------------------------------- the page about them

PAGE = (ROOT / "docs/reference/logs.md").read_text(encoding="utf-8")


def test_the_page_names_every_transition() -> None:
    source = "".join(path.read_text() for path in (ROOT / "slicelock/protocol").glob("*.py"))
    words = [
        word for call in re.findall(r"\bnote\(([^)]*)", source) for word in re.findall(r'"([a-z ]+)"', call)
    ]
    assert sorted(words) == ["given back", "held", "lost", "yielded"]
    for word in (*words, "ready", *(f"failed to {verb}" for verb in VERBS.values())):
        assert f"| `{word}` |" in PAGE, word


def test_the_pages_examples_are_lines_as_they_are_written() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith(("slicelock: ", "slicelock-agent: "))]
    assert len(lines) == 3
    for line in lines:
        program, _, rest = line.partition(": ")
        word, *facts = rest.split(" ")
        made = LogLine(word, **dict(one.split("=", 1) for one in facts))
        assert formatter(program, LogFormat.TEXT).format(record(made)) == line
    [told] = [json.loads(line) for line in PAGE.splitlines() if line.startswith('{"time"')]
    word, facts = told["message"], {name: told[name] for name in list(told)[4:]}
    again = json.loads(JsonFormatter(told["program"]).format(record(LogLine(word, **facts))))
    assert list(again) == list(told) and again | {"time": told["time"]} == told


def test_the_page_names_every_fact(caplog: pytest.LogCaptureFixture) -> None:
    part, who = (
        Part(Wish(("s",), "main", "train"), "r", 1, fences={"s": 7}),
        Who("r", "j", "0", 1, "p", 0, 1, 1, 1),
    )
    with caplog.at_level(logging.INFO):
        note("held", who, part, waited_s=1.0, moved=True)
        note("yielded", who, part, waiters=1)
        note("lost", who, part, outcome="expired", reason="why")
        Result("s", 1, "FAILED", "r", "evict", "why", bytes=1, seconds=1.0).log("r", "j")
    lines = [one.msg for one in caplog.records]
    assert len(lines) == 4
    for fact in {fact for line in lines for fact in line.facts}:
        assert f"`{fact}`" in PAGE, fact
