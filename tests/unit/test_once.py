"""What workers share is made by one of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.support.once import made_once

WORKERS = 4


@pytest.fixture(autouse=True)
def as_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")


class Factory:
    """A worker's own folder within that of the run."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def getbasetemp(self) -> Path:
        return self.base


def test_all_workers_have_what_one_has_made(tmp_path: Path) -> None:
    made: list[Path] = []
    together = Barrier(WORKERS)

    def make(place: Path) -> None:
        made.append(place)
        (place / "file").write_text("all of it")

    def worker(number: int) -> str:
        together.wait()
        return (made_once(Factory(tmp_path / f"popen-gw{number}"), "what", make) / "file").read_text()  # type: ignore[arg-type]

    with ThreadPoolExecutor(WORKERS) as pool:
        assert list(pool.map(worker, range(WORKERS))) == ["all of it"] * WORKERS
    assert made == [tmp_path / "what"]


def test_after_a_failure_it_is_made_anew(tmp_path: Path) -> None:
    factory = Factory(tmp_path / "popen-gw0")

    def half(place: Path) -> None:
        (place / "half").touch()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        made_once(factory, "what", half)  # type: ignore[arg-type]
    place = made_once(factory, "what", lambda place: (place / "whole").touch())  # type: ignore[arg-type]
    assert [path.name for path in place.iterdir()] == ["whole"]
