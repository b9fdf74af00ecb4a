"""Calling the command line in this process, and what it printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from slicelock.cli import main


@dataclass(frozen=True, slots=True)
class Called:
    """A command's end."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, f"not one line: {self.err!r}"
        assert "Traceback" not in self.err
        return lines[0]


Call = Callable[..., Called]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `slicelock` with some words."""

    def made(*words: str) -> Called:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return Called(int(code), out, err)

    return made
