"""Standard streams that are closed, full, or read no further: every command reacts in the same way."""

from __future__ import annotations

import os
import subprocess

import pytest

from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call
from tests.cli.programs import SLICELOCK
from tests.support.world import World

pytestmark = pytest.mark.one_server

PRINTING = {
    "help": "--help",
    "help of one": "status --help",
    "no command": "slice",
    "version": "version --json",
    "status": "status",
    "top": "top --once",
    "report": "report",
    "report as JSON": "report --json",
    "events": "events",
    "doctor": "doctor",
}


@pytest.fixture(autouse=True)
def some_history(slicelock_env: dict[str, str], world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    world.member("r1").hold("a", phase="train")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Let a shell run `slicelock` with some words."""
    command = ["bash", "-c", f"{' '.join(SLICELOCK)} {line}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_reader_that_goes_ends_it_also_when_nothing_happens() -> None:
    begun = shell("events --follow --since 1h | head -n 1; exit ${PIPESTATUS[0]}")
    assert (begun.returncode, begun.stderr, begun.stdout.count("\n")) == (141, "", 1)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("words", ["run --help", "doctor", "events", "report", "top --once"])
def test_what_an_encoding_cannot_show_is_shown_in_plain_signs(words: str, encoding: str) -> None:
    ended = subprocess.run(
        [*SLICELOCK, *words.split()],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (ExitCode.DONE, b"")
    assert (b"COMMAND..." in ended.stdout) == (words == "run --help")
    assert b"\\u" not in ended.stdout


@pytest.mark.parametrize("words", PRINTING.values(), ids=PRINTING)
def test_a_reader_that_is_gone_ends_it_without_a_word(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [*SLICELOCK, *words.split()],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.parametrize("words", PRINTING.values(), ids=PRINTING)
def test_a_full_disk_is_one_line(words: str) -> None:
    ended = shell(f"{words} >/dev/full")
    assert ended.returncode == ExitCode.OTHER
    assert ended.stderr == "slicelock: Standard output cannot be written: No space left on device.\n"


@pytest.mark.parametrize("words", ["status", "report --json", "top --once", "events", "--help"])
def test_a_closed_output_takes_everything(words: str) -> None:
    ended = shell(f"{words} >&-")
    assert (ended.returncode, ended.stderr) == (ExitCode.DONE, "")


def test_all_may_be_closed() -> None:
    assert shell("top <&- >&- 2>&-").returncode == ExitCode.DONE


def test_what_cannot_be_said_changes_nothing() -> None:
    assert shell("slice declare b 2>/dev/full").returncode == ExitCode.DONE
    assert shell("status nonesuch 2>/dev/full").returncode == ExitCode.OTHER


def test_a_command_finds_what_was_closed_closed() -> None:
    ended = shell("run -- sh -c '[ -e /proc/self/fd/1 ]; echo $? >&2' >&-")
    assert (ended.returncode, ended.stderr) == (0, "1\n")


@pytest.mark.parametrize(
    "words", [("revoke", "a", "--why"), ("slice", "drain", "a", "--why"), ("run", "--slice", "a", "--until")]
)
def test_a_text_that_is_not_utf_8(call: Call, words: tuple[str, ...]) -> None:
    ended = call(*words, os.fsdecode(b"six\xff"), *(["--", "true"] if words[0] == "run" else []))
    assert ended.code == ExitCode.USAGE
    assert "is not UTF-8" in ended.complaint and words[-1] in ended.complaint


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("slice", "declare", "a", "--set"), "--set"),
        (("revoke",), "SLICE|REQUEST"),
        (("timeline", "-o"), "--out"),
    ],
)
def test_a_text_that_is_not_utf_8_is_told_by_the_name_that_users_know(
    call: Call, words: tuple[str, ...], named: str
) -> None:
    ended = call(*words, os.fsdecode(b"r/\xff"))
    assert ended.code == ExitCode.USAGE and f"value for {named}: " in ended.complaint


@pytest.mark.parametrize("words", [("events",), ("events", "--since"), ("slice",), ("run", "--")])
def test_what_nobody_could_read_is_told_without_its_middle(call: Call, words: tuple[str, ...]) -> None:
    ended = call(*words, "x" * 100_000)
    assert ended.code != ExitCode.DONE and len(ended.complaint) < 3000
    assert "xx […] xx" in ended.complaint and ended.complaint.endswith(("--help", "after `--`."))


def test_what_a_command_is_given_may_be_any_bytes() -> None:
    assert shell("run -- printf %s $'a\\xff' | od -An -tx1").stdout.split() == ["61", "ff"]


@pytest.mark.parametrize("command", ["report", "events", "timeline"])
def test_an_empty_since_is_none(call: Call, command: str) -> None:
    words = ["--out", "/nonesuch/t"] if command == "timeline" else []
    ended = call(command, "--since", "", *words)
    assert ended.code == ExitCode.USAGE and "--since" in ended.complaint


@pytest.mark.parametrize("words", [("status", ""), ("events", "--slice", "")])
def test_an_empty_name_is_none(call: Call, words: tuple[str, ...]) -> None:
    ended = call(*words)
    assert ended.code == ExitCode.USAGE and "''" in ended.complaint
