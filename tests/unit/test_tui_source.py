"""Asking Redis for `slicelock top`: whatever it says, the view goes on and says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from redis import exceptions as redis_errors

from slicelock.errors import StoreError
from slicelock.settings import StoreSettings
from slicelock.store import probe
from slicelock.tui.app import App
from slicelock.tui.source import Away, Source

SETTINGS = StoreSettings(redis_url="redis://127.0.0.1:1", pool="p")  # type: ignore[arg-type]


@pytest.fixture
def source() -> Iterator[Source]:
    """Nobody is asked: there is no server."""
    with closing(Source(SETTINGS, 0.01)) as made:
        yield made


def test_a_fault_is_shown_and_the_thread_goes_on(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("no number")

    monkeypatch.setattr(source, "look", broken)
    monkeypatch.setattr(source, "_probe", lambda: None)
    source.start()
    for _ in range(2):
        message = source.inbox.get(timeout=10)
        assert isinstance(message, Away) and "ValueError: no number" in message.why


class Link:
    """A connection that answers with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def send_command(self, *words: str) -> None:
        """Taken."""

    def read_response(self) -> None:
        raise self.error

    def disconnect(self) -> None:
        """Nothing to close."""


def may_write(monkeypatch: pytest.MonkeyPatch, error: Exception) -> bool:
    monkeypatch.setattr(probe, "opened", lambda *_: (Link(error), None))
    return probe.may_write(SETTINGS)


def test_only_a_missing_right_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert may_write(monkeypatch, redis_errors.NoPermissionError("no DEL")) is False
    for text in ("BUSY Redis is busy", "MISCONF no disk", "ERR something"):
        with pytest.raises(StoreError):
            may_write(monkeypatch, redis_errors.ResponseError(text))


class Came(list[int]):
    """Signals that came, with one more in the middle of looking at them."""

    def pop(self, at: int = -1) -> int:  # type: ignore[override]
        first = super().pop(at)
        if first == 0:
            self.append(15)
        return first


def test_no_signal_is_lost() -> None:
    app = App(SETTINGS, 1.0, readonly=True)
    app._came = Came([0, 0])  # pyright: ignore[reportPrivateUsage]
    assert app._heed(None) == 143  # type: ignore[arg-type] # pyright: ignore
