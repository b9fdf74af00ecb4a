"""Errors become exit codes and one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicelock import errors
from slicelock.cli import app as cli_app
from slicelock.cli import failures
from slicelock.cli.console import say
from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call

CODES = {
    errors.SlicelockError: ExitCode.OTHER,
    errors.ConfigurationError: ExitCode.SETTINGS,
    errors.StoreUnavailable: ExitCode.UNREACHABLE,
    errors.StoreTimeout: ExitCode.UNREACHABLE,
    errors.SchemaMismatch: ExitCode.OTHER,
    errors.AcquireTimeout: ExitCode.NOT_GRANTED,
    errors.Busy: ExitCode.NOT_GRANTED,
    errors.UnknownSlice: ExitCode.NOT_GRANTED,
    errors.RunLost: ExitCode.NOT_GRANTED,
    errors.Expired: ExitCode.TURN_LOST,
    errors.Revoked: ExitCode.TURN_LOST,
    errors.Superseded: ExitCode.TURN_LOST,
    errors.SnapshotFailed: ExitCode.OTHER,
    failures.Refused: ExitCode.OTHER,
    failures.UsageError: ExitCode.USAGE,
    ValueError: ExitCode.OTHER,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_every_error_has_its_code(kind: type[Exception], code: ExitCode) -> None:
    assert failures.exit_code(kind("something")) == code


def test_advice_is_not_given_twice() -> None:
    own = errors.StoreUnavailable("It is away.", advice="Start it.")
    assert failures.one_line(own) == "It is away. Start it."
    assert "slicelock doctor" in failures.one_line(errors.StoreUnavailable("It is away."))


def test_one_line_is_one_line() -> None:
    assert "\n" not in failures.one_line(errors.AgentError("one\ntwo\n\nthree"))
    assert failures.one_line(ValueError("odd\nthing")).startswith(
        "ValueError: odd thing (repeat with --debug"
    )


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise RuntimeError("no slicelock\nat all")

    monkeypatch.setattr(cli_app, "installed_version", fail)


def test_a_surprise_is_one_line(call: Call, broken: None) -> None:
    ended = call("version")
    assert ended.code == ExitCode.OTHER
    assert (
        ended.complaint == "slicelock: RuntimeError: no slicelock at all (repeat with --debug to see where)"
    )


def test_a_broken_settings_file_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    ended = call("status")
    assert ended.code == ExitCode.SETTINGS
    assert str(tmp_path / ".env") in ended.complaint and "UTF-8" in ended.complaint


def test_debug_shows_where(call: Call, broken: None) -> None:
    ended = call("version", "--debug")
    assert ended.code == ExitCode.OTHER
    assert "Traceback" in ended.err and ended.err.strip().endswith("(repeat with --debug to see where)")


def test_a_question_keeps_its_mark(call: Call) -> None:
    complaint = call("statu").complaint  # whether it is a question depends on the version of typer
    assert "?." not in complaint and " See: " in complaint


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nonesuch"], "nonesuch"),
        (["status", "--nonesuch"], "--nonesuch"),
        (["slice", "declare"], "SLICE"),
        (["slice", "declare", "a b"], "a b"),
        (["slice", "declare", ""], "''"),
        (["slice", "declare", "a" * 65], "1 to 64"),
        (["slice", "declare", "a", "--node", "n"], "NODE=DEVICES"),
        (["slice", "declare", "a", "--node", "n="], "NODE=DEVICES"),
        (["slice", "declare", "a", "--node", "n=0,0"], "twice"),
        (["slice", "declare", "a", "--node", "n=0", "--node", "n=1"], "twice"),
        (["slice", "declare", "a", "--node", "bad name=0"], "bad name"),
        (["slice", "declare", "a", "--node", "n=0,\x1b[31m"], "device '\\x1b[31m' is not allowed"),
        (["slice", "declare", "a", "--node", f"n={'9' * 200}"], "is not allowed"),
        (["slice", "declare", "a", "--set", f"min_free={10**30}"], "it is no size"),
        (["slice", "forget", "-x"], "-x"),
        (["status", "no/pe"], "no/pe"),
        (["revoke"], "SLICE|REQUEST"),
        (["revoke", "no pe"], "no pe"),
        (["up", "--slice", "nope"], "NAME=DEVICES"),
        (["up", "--slice", "a=sim:0", "--slice", "a=sim:1"], "twice"),
        (["up", "--port", "70000"], "--port"),
        (["bench", "queue", "--waiters", "ten"], "ten"),
        (["bench", "queue", "--waiters", "0"], "0"),
        (["bench", "handoff", "--samples", "1"], "--samples"),
        (["demo", "--jobs", "1"], "--jobs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_that_names_it(call: Call, words: list[str], named: str) -> None:
    ended = call(*words)
    assert ended.code == ExitCode.USAGE
    assert ended.out == ""
    assert named in ended.complaint and "--help" in ended.complaint


def test_no_error_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    wild = "x\x1b]0;PWNED\x07\n\x9by"
    assert failures.one_line(errors.StoreError(wild)).startswith("x␛]0;PWNED␇ �y")
    say(f"Revoked {wild}")
    assert capsys.readouterr().err == "Revoked x␛]0;PWNED␇\n�y\n"
