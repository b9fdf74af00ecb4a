"""The agent's standard streams, closed, full, or read no further: as with every command of `slicelock`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from slicelock_agent import daemon
from slicelock_agent.__main__ import main as program_main

from slicelock.exits import ExitCode
from tests.cli.test_exit_codes import Interrupted

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


@cache
def told_everything(words: str) -> subprocess.CompletedProcess[str]:
    return shell(words)


@pytest.mark.parametrize("words", ["--version", "--health", "--nonsense"])
@pytest.mark.parametrize("closed", [">&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_what_nobody_can_be_told_changes_no_exit_code(words: str, closed: str) -> None:
    told, untold = told_everything(words), shell(f"{words} {closed}")
    assert told.returncode == untold.returncode
    assert untold.stderr in ("", told.stderr)


def test_health_without_redis_has_the_code_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = shell("--health")
    assert (ended.returncode, ended.stderr) == (ExitCode.UNREACHABLE, "")
    assert "127.0.0.1:1 cannot be reached" in ended.stdout and ended.stdout.count("\n") == 1


def test_health_as_json_is_one_object_also_on_failure() -> None:
    ended = shell("--health --json --node n")
    told = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (ExitCode.UNREACHABLE, "")
    assert "cannot be reached" in told.pop("found")
    assert told == {"ok": False, "pool": "default", "node": "n"}


@pytest.mark.parametrize("words", ["--json", "--json --slice s=sim:0", "--check --health"])
def test_what_makes_no_sense_together_is_a_usage_error(words: str) -> None:
    ended = shell(words)
    assert ended.returncode == ExitCode.USAGE and ended.stderr.count("\n") == 1


@pytest.mark.parametrize("debug", [False, True])
def test_a_traceback_is_for_debugging_only(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: object) -> None:
        raise RuntimeError("out\nof order")

    monkeypatch.setattr(daemon, "prepare", lambda: None)  # pytest's standard output has no descriptor
    monkeypatch.setattr(daemon, "parse_slices", broken)
    assert daemon.main(["--debug"] if debug else []) == ExitCode.OTHER
    err = capsys.readouterr().err
    assert err.startswith("slicelock-agent: error: RuntimeError: out of order (repeat with --debug")
    assert ("Traceback" in err) == debug and (err.count("\n") == 1) != debug


def test_ctrl_c_during_the_start_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "slicelock_agent.daemon")
    monkeypatch.setattr(sys, "meta_path", [Interrupted("slicelock_agent.daemon"), *sys.meta_path])
    assert program_main() == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("nowhere", "'nowhere' is not HOST:PORT, nor a port; for example 127.0.0.1:9464"),
        ("ü..ü:0", "cannot be served at ü..ü:0: "),
        ("nowhere.invalid:0", "Set another SLICELOCK_METRICS, for example 127.0.0.1:9464."),
    ],
)
def test_an_address_for_metrics_that_cannot_be_had_is_a_wrong_setting(
    address: str, says: str, slicelock_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLICELOCK_METRICS", address)
    monkeypatch.setenv("SLICELOCK_SIM_DIR", str(tmp_path / "sim"))
    ended = shell(f"--slice s=sim:0 --state-dir {tmp_path / 'state'}")
    assert ended.returncode == ExitCode.SETTINGS and says in ended.stderr, ended.stderr
    assert ended.stderr.count("\n") == 1


def test_what_nobody_could_read_is_told_without_its_middle() -> None:
    ended = shell(f"--{'x' * 100_000}")
    assert ended.returncode == ExitCode.USAGE and len(ended.stderr) < 3000
    assert "xx […] xx" in ended.stderr and ended.stderr.endswith("See: slicelock-agent --help\n")


def test_an_unknown_option_is_one_line_with_the_remedy() -> None:
    ended = shell("--nonsense")
    assert ended.returncode == ExitCode.USAGE
    assert ended.stderr == (
        "slicelock-agent: error: Unrecognized arguments: --nonsense. See: slicelock-agent --help\n"
    )
