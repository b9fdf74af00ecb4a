"""Spans of a turn, told to a made-up OpenTelemetry; and that nothing of it is needed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from slicelock.client import tracing
from slicelock.protocol import Part, Wish

Span = tuple[str, int, int]


class Api:
    """What slicelock uses of `opentelemetry.trace`; remembers finished spans."""

    StatusCode = SimpleNamespace(ERROR="error")

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def get_tracer(self, name: str) -> Api:
        return self

    def set_span_in_context(self, span: object, context: object) -> object:
        return span

    def start_span(self, name: str, start_time: int, **more: Any) -> SimpleNamespace:
        return SimpleNamespace(
            end=lambda end_time: self.spans.append((name, start_time, end_time)),
            set_status=lambda code, why: self.spans.append((why, 0, 0)),
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ns, to be set."""
    now = [0]
    monkeypatch.setattr(tracing.time, "time_ns", lambda: now[0])
    return now


def part(waited_s: float, *, moved: bool) -> Part:
    made = Part(Wish(("s",), "main", "train", 0, None, True), "run")
    made.waited_s, made.moved = waited_s, moved
    return made


def traced(
    clock: list[int], one: Part, *, held: int = 0, ended: int, failure: Exception | None = None
) -> list[Span]:
    api = Api()
    clock[0] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, tracing.CONTEXT, SimpleNamespace(get_current=lambda: "here"))
        trace = tracing.Trace(api)
    if held:
        clock[0] = held
        trace.begun()
    clock[0] = ended
    trace.end(one, "job", failure)
    return api.spans


S = tracing.NS


def test_a_turn_with_a_switch(clock: list[int]) -> None:
    assert traced(clock, part(2, moved=True), held=5 * S, ended=9 * S) == [
        ("slicelock wait", 0, 2 * S),
        ("slicelock switch", 2 * S, 5 * S),
        ("slicelock phase train", 5 * S, 9 * S),
        ("slicelock turn", 0, 9 * S),
    ]


def test_a_turn_for_which_nothing_was_moved(clock: list[int]) -> None:
    names = [name for name, *_ in traced(clock, part(1, moved=False), held=2 * S, ended=3 * S)]
    assert names == ["slicelock wait", "slicelock phase train", "slicelock turn"]


def test_a_turn_that_did_not_begin(clock: list[int]) -> None:
    assert traced(clock, part(0, moved=False), ended=3 * S, failure=ValueError("no")) == [
        ("slicelock wait", 0, 3 * S),
        ("no", 0, 0),
        ("slicelock turn", 0, 3 * S),
    ]


def test_a_program_whose_tracing_fails_has_its_turns_all_the_same(
    clock: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> SimpleNamespace:
        raise ZeroDivisionError

    monkeypatch.setattr(Api, "start_span", broken)
    assert traced(clock, part(0, moved=False), ended=3 * S) == []
    assert "turn run/main/0 could not be traced" in caplog.text


def test_without_opentelemetry_nothing_of_it_is_asked_for() -> None:
    gone = "import sys; sys.modules['opentelemetry'] = None"
    code = f"{gone}; import slicelock.client.tracing as t; print(t.begin())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None"]


def test_an_opentelemetry_that_nobody_has_set_up_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proxy:
        pass

    api = SimpleNamespace(ProxyTracerProvider=Proxy, get_tracer_provider=Proxy)
    monkeypatch.setitem(sys.modules, tracing.API, api)
    assert tracing.begin() is None
