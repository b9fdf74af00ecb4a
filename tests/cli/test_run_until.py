"""`slicelock run --until` a health URL at which something strange listens."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from slicelock.cli import hold
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Declare
from tests.cli.programs import program

pytestmark = pytest.mark.one_server


@pytest.fixture
def a_slice(slicelock_env: dict[str, str]) -> None:
    store = Store(StoreSettings.load())
    assert store.run(Declare("lic", {})).outcome == "OK"
    store.close()


class Strange:
    """Listens, answers everything with the same bytes, and counts whom it has answered."""

    def __init__(self, answer: bytes, asked: Path) -> None:
        self._answer, self._asked = answer, asked
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = Thread(target=self._serve)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/health"

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            with link:
                link.recv(65536)
                link.sendall(self._answer)
            number += 1
            self._asked.write_text("x" * number)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture(params=[b"garbage\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nx" + b"y" * 70_000])
def strange(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strange]:
    made = Strange(request.param, tmp_path / "asked")
    yield made
    made.close()


@pytest.mark.usefixtures("a_slice")
def test_what_speaks_no_http_has_not_answered(strange: Strange, tmp_path: Path) -> None:
    twice = f'until [ "$(cat {tmp_path}/asked 2>/dev/null)" = xx ]; do sleep 0.05; done; exit 5'
    with program("run", "--slice", "lic", "--until", strange.url, "--", "sh", "-c", twice) as process:
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 5


class Turn:
    """A turn that is not lost; it may not be given back."""

    over = False

    def __init__(self) -> None:
        self.lost = asyncio.Event()


class Child:
    """A command that ends after a while."""

    async def wait(self) -> int:
        await asyncio.sleep(0.1)
        return 5


def test_a_question_that_fails_gives_nothing_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(url: str) -> bool:
        raise RuntimeError("odd")

    monkeypatch.setattr(hold, "_answers", broken)
    plan = hold.Plan(["true"], os.environ, ["lic"], None, until="http://x/")
    assert asyncio.run(hold.Hold(plan)._mind(Turn(), Child())) == 5
    assert "cannot be asked (RuntimeError: odd" in capsys.readouterr().err
