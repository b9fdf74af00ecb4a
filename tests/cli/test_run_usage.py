"""`slicelock run` called in ways that make no sense, and without what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call
from tests.cli.programs import program


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "COMMAND"),
        (("--hold", "--", "true"), "--slice"),
        (("--until", "http://x/", "--", "true"), "--slice"),
        (("--slice", "a", "--until", "x", "--", "true"), "--until"),
        (("--slice", "a b", "--", "true"), "a b"),
        (("--job", "a/b", "--", "true"), "a/b"),
        (("--phase", "a b", "--", "true"), "a b"),
        (("--pool", "a b", "--", "true"), "a b"),
        (("--slice", "a", "--timeout", "-1", "--", "true"), "--timeout"),
        (("--slice", "a", "--timeout", "0", "--", "true"), "--timeout needs --until (or --hold)"),
        (("--slice", "a", "--phase", "train", "--", "true"), "--phase needs --until (or --hold)"),
        (("--slice", "a", "--server", "vllm=http://x:1", "--", "true"), "--server needs --until (or --hold)"),
    ],
)
def test_wrong_usage(call: Call, words: tuple[str, ...], named: str) -> None:
    ended = call("run", *words)
    assert ended.code == ExitCode.USAGE and named in ended.complaint


@pytest.mark.parametrize(
    "url",
    [
        *("", "http://127.0.0.1:abc/", "http://127.0.0.1:70000/", "http://127.0.0.1:0/", "http://a b/"),
        *(
            "http://x/a b",
            "http://x/a\nb",
            "http://x/ä",
            "http://[",
            "http://[::1/",
            "http://:80/",
            "http://u@x/",
        ),
    ],
)
def test_a_health_url_that_nobody_can_ask(call: Call, url: str) -> None:
    ended = call("run", "--slice", "a", "--until", url, "--", "true")
    assert ended.code == ExitCode.USAGE
    assert "--until" in ended.complaint and "for example" in ended.complaint


def test_missing_settings(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "SLICELOCK_REDIS_URL" in call("run", "--", "true").complaint
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "redis://127.0.0.1:1")
    ended = call("run", "--", "true")
    assert ended.code == ExitCode.SETTINGS and "SLICELOCK_JOB" in ended.complaint


def test_redis_is_away(call: Call) -> None:
    env = {"SLICELOCK_REDIS_URL": "redis://127.0.0.1:1", "SLICELOCK_JOB": "a"}
    with program("run", "--slice", "lic", "--hold", "--", "true", env=env) as process:
        _, err = process.communicate(timeout=20)
    assert process.returncode == ExitCode.UNREACHABLE
    assert "127.0.0.1:1" in err and len(err.splitlines()) == 1


@pytest.mark.usefixtures("slicelock_env")
def test_a_directory_is_no_command(call: Call, tmp_path: Path) -> None:
    ended = call("run", "--job", "a", "--", str(tmp_path))
    assert "cannot be started: it is a directory." in ended.complaint


@pytest.mark.parametrize("option", ["x", "a b=sim:0", "a="])
@pytest.mark.parametrize(("command", "name"), [(("up",), "--slice"), (("slice", "declare", "s"), "--node")])
def test_what_makes_no_sense_is_named_with_its_option(
    call: Call, command: tuple[str, ...], name: str, option: str
) -> None:
    ended = call(*command, name, option)
    assert ended.code == ExitCode.USAGE and f"Invalid value for {name}: " in ended.complaint
