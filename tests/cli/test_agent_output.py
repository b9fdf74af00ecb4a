"""The agent's standard streams, closed, full, or read no further: as with every command of `slicelock`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slicelock.exits import ExitCode

AGENT = [sys.executable, "-m", "slicelock_agent"]
PRINTING = ["--version", "--help", "--check", "--health"]
FULL = "slicelock-agent: error: Standard output cannot be written: No space left on device.\n"


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "redis://127.0.0.1:1/0")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Let a shell run `slicelock-agent` with some words."""
    command = ["bash", "-c", f"{' '.join(AGENT)} {line}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", PRINTING)
def test_a_full_disk_is_one_line(words: str) -> None:
    ended = shell(f"{words} >/dev/full")
    assert (ended.returncode, ended.stderr) == (ExitCode.OTHER, FULL)


@pytest.mark.parametrize("words", PRINTING)
def test_a_reader_that_is_gone_ends_it_without_a_word(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [*AGENT, *words.split()]
        ended = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("words", ["--version", "--health", "--nonsense"])
@pytest.mark.parametrize("closed", [">&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_what_nobody_can_be_told_changes_no_exit_code(words: str, closed: str) -> None:
    told, untold = shell(words), shell(f"{words} {closed}")
    assert told.returncode == untold.returncode
    assert untold.stderr in ("", told.stderr)


def test_an_unknown_option_is_one_line_with_the_remedy() -> None:
    ended = shell("--nonsense")
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr == (
        "slicelock-agent: error: Unrecognized arguments: --nonsense. See: slicelock-agent --help\n"
    )
