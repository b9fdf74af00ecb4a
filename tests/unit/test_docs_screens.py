"""The pictures of `slicelock top` in the docs are what it draws now."""

from __future__ import annotations

import importlib
import struct
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.docs import ROOT

LARGEST = 150_000  # bytes of a picture


@pytest.fixture
def screens(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield importlib.import_module("docs_screens")
    sys.modules.pop("docs_screens", None)
    monkeypatch.undo()
    time.tzset()


def test_what_is_there_as_png_is_there_as_svg_and_small(screens: ModuleType) -> None:
    for name in screens.PNGS:
        assert name in [shot.name for shot in screens.SHOTS]
        data = (screens.IMAGES / f"{name}.png").read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">I", data[16:20])[0] == screens.PNG_WIDTH
    for path in screens.IMAGES.iterdir():
        assert path.stat().st_size < LARGEST, f"{path.name}: tools/docs_png.py makes pictures smaller"


def test_the_pictures_are_current(screens: ModuleType) -> None:
    for shot in screens.SHOTS:
        kept = (screens.IMAGES / f"{shot.name}.svg").read_text(encoding="utf-8")
        assert kept == screens.draw(shot), f"{shot.name}: python tools/docs_screens.py takes them anew"
        assert "http://" not in kept.replace("http://www.w3.org/", "") and "https://" not in kept
