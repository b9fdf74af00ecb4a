"""Signals that ask a program to end."""

from __future__ import annotations

import signal
from enum import StrEnum
from types import FrameType

import pytest

from slicelock.signals import handled, put_off
from slicelock.variables import Variables


class Ended(BaseException):
    """What a program's own handler raises."""


def end(number: int, frame: FrameType | None) -> None:
    raise Ended


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Ended)])
def test_what_comes_while_a_schema_is_built_stays_what_it_is(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    """Pydantic makes a SchemaError of it, or loses it."""
    armed = True

    class Kind(StrEnum):
        ONE = "one"

        def __getattribute__(self, name: str) -> object:
            if name == "value" and armed:
                signal.raise_signal(number)
            return super().__getattribute__(name)

    class Facts(Variables):
        kind: Kind = Kind.ONE

    with handled([signal.SIGTERM], end), pytest.raises(raised):
        Facts.load()
    armed = False
    assert Facts.load().kind is Kind.ONE


def test_it_comes_after_the_block_also_when_that_fails() -> None:
    log: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with handled([signal.SIGTERM], lambda *_: log.append("told")):
        with pytest.raises(ValueError, match="mine"), put_off():
            signal.raise_signal(signal.SIGTERM)
            log.append("goes on")
            raise ValueError("mine")
        assert log == ["goes on", "told"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_all_of_several_come_also_when_the_first_ends_what_is_done() -> None:
    log: list[int] = []

    def note(number: int, _frame: object) -> None:
        log.append(number)
        raise KeyboardInterrupt

    with handled([signal.SIGINT, signal.SIGTERM], note), pytest.raises(KeyboardInterrupt), put_off():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert log == [signal.SIGINT, signal.SIGTERM]
