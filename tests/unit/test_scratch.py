"""Temporary folders: gone at the end, and after a kill with the next of their kind."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from slicelock.embedded import EmbeddedServer
from slicelock.errors import ConfigurationError
from slicelock.scratch import scratch

LEAVE = """
import os, pathlib, sys
from slicelock.scratch import scratch
with scratch(pathlib.Path(sys.argv[1]), "test") as folder:
    (folder / "file").touch()
    os.kill(os.getpid(), 9)
"""


def test_a_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch(tmp_path, "test") as folder:
        (folder / "file").touch()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVE, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with scratch(tmp_path, "other"):
        assert left.exists()
    with scratch(tmp_path, "test") as mine, scratch(tmp_path, "test") as another:
        assert sorted(tmp_path.iterdir()) == sorted([mine, another])


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"No folder can be made in .*missing"),
        scratch(tmp_path / "missing", "test"),
    ):
        pass


def test_no_folder_for_temporary_files_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(ConfigurationError, match=r"can be written\. Set TMPDIR"):
        EmbeddedServer()
